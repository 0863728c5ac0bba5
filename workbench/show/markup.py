"""The few pieces of html that every form uses. All text of users and compilers is escaped here or by `escape`."""

from __future__ import annotations

import re
from html import escape

TIMES, MICRO = "×", "µs"
DOTS = {"pass": "p", "agree": "p", "fail": "f", "skip": "s"}


def dot(status: str, word: str = "") -> str:
    """A coloured dot; the word inside it shows where styles are stripped, and to screen readers."""
    word = word or ("pass" if status == "agree" else status)
    return f'<span class="dot {DOTS.get(status, "f")}">{escape(word)} </span>'


def rich(said: str) -> str:
    """Escaped, with `code` in backticks set as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(said))


def captions(said: tuple[str, ...] | list[str]) -> str:
    """Notes and the like, one quiet paragraph each."""
    return "".join(f'<p class="cap">{rich(part)}</p>'.replace("\n", "<br>") for part in said)


def folded(title: str, body: str) -> str:
    """`body` behind a title that opens it."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def typeset(said: str) -> str:
    """Our own plain text with the signs that html can have: "6 cases x 3 dtypes" and "41 us"."""
    return re.sub(r"(?<=\d) us\b", f" {MICRO}", re.sub(r" x (?=\d)", f" {TIMES} ", said))
