"""What changed between two texts, line by line: one colour for what came, one for what went."""

from __future__ import annotations

import difflib
import functools
from html import escape

CONTEXT = 1  # unchanged lines around a change
MOST_LINES, LONGEST = 48, 400
GAP = "..."
CLASSES = {"+": "add", "-": "del", GAP: "gap"}


@functools.lru_cache(1024)
def changes(before: str, after: str) -> tuple[tuple[str, str], ...]:
    """(mark, line) of each line that came ("+"), went ("-") or stands beside one (" "); (GAP, "") between places.

    >>> changes("a\\nb\\nc", "a\\nB\\nc")
    ((' ', 'a'), ('-', 'b'), ('+', 'B'), (' ', 'c'))
    """
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=CONTEXT)
    found = [(GAP, "") if row.startswith("@@") else (row[0], row[1:]) for row in list(rows)[2:]]
    return tuple(found[1:])  # the first place needs no gap before it


def counts(before: str, after: str) -> tuple[int, int]:
    """How many lines came and how many went."""
    marks = [mark for mark, _ in changes(before, after)]
    return marks.count("+"), marks.count("-")


def pre(before: str, after: str) -> str:
    """The changes as `<pre>`, cut after 48 lines, which it says."""
    rows = changes(before, after)
    shown = [_row(mark, line) for mark, line in rows[:MOST_LINES]]
    cut = f'<p class="cap">and {len(rows) - MOST_LINES:,} more lines</p>' if len(rows) > MOST_LINES else ""
    return f'<pre class="diff"><code>{chr(10).join(shown)}</code></pre>{cut}'


def _row(mark: str, line: str) -> str:
    said = "⋯" if mark == GAP else f"{mark} {escape(line[:LONGEST])}".rstrip()
    return f'<span class="{CLASSES[mark]}">{said}</span>' if mark in CLASSES else said
