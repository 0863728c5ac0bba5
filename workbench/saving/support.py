"""The headers that a package's C++ stands on: those of the live launchers, without what only a live op needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ..build import headers
from ..source import code
from . import templates

FOLDER = "csrc/support"
SPACE = "host_code"  # the namespace, and the beginning of names that have none
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def own(text: str, kernel: Any = None) -> str:
    """Generated C++ with a package's names: `wb::Frame` is `host_code::Frame`, `wb_body.h` is `body.h`.

    >>> own('#include "wb_body.h"\\nwb::run(f);')
    '#include "support/body.h"\\nhost_code::run(f);'

    What the user of `kernel` calls so keeps its name.
    """
    text = re.sub(r'#include "(?:wb_)?((?:launcher|body|half|bfloat16|host|say|full)\w*\.h)"',
                  r'#include "support/\1"', text)  # fmt: skip
    return _renamed(text, _theirs(kernel) if kernel is not None else frozenset())


def _renamed(text: str, theirs: frozenset[str] = frozenset()) -> str:
    def named(found: re.Match) -> str:
        if found[0] in theirs or any(found[0].startswith(f"{name}_") for name in theirs):
            return found[0]
        return f"{SPACE if found[1] == 'wb' else SPACE.upper()}_{found[2]}"

    text = re.sub(r"\b(wb|WB)_(\w*)", named, text)
    text = re.sub(r'(?<![@"])\bwb\b(?=::| \{|$)|(?<=namespace )wb\b', SPACE, text, flags=re.MULTILINE)
    return text.replace("@wb@", "wb")


def _theirs(kernel: Any) -> frozenset[str]:
    """The names that the user gave and that begin as ours do: the op may be called `wb_scale`, or its function."""
    given = f"{kernel.schema.namespace} {kernel.schema.name} {code(kernel.source.text)}"
    return frozenset(re.findall(r"\b(?:wb|WB)_\w+", given))


def standalone(text: str) -> str:
    """A header of ours without the parts that serve a live op, and without words on them."""
    for said, instead in _otherwise():
        text = text.replace(said, instead)
    text = "".join(_without_live(text.splitlines(keepends=True)))
    text = re.sub(r'#include "wb_(\w+\.h)"', r'#include "\1"', text)
    return _renamed(text)


@cache
def _otherwise() -> tuple[tuple[str, str], ...]:
    """(what our headers say of cells and live ops, what a package's say): `words.txt`, "-" before one, "+" the other.

    A "." ends those that are whole lines.
    """
    found = []
    for block in templates.text("cpp/words.txt").strip("\n").split("\n\n"):
        rows = block.split("\n")
        end = "\n" if rows[-1] == "." else ""
        old, new = ("\n".join(r[1:] for r in rows if r.startswith(sign)) for sign in "-+")
        found.append((old + end, new + end if new else ""))
    return tuple(found)


def _without_live(lines: Iterable[str]) -> Iterator[str]:
    """Resolve `#ifdef WB_LIVE ... #else ... #endif`, in which other conditionals may lie."""
    stack: list[str] = []  # of open conditionals: "live", "other" (the #else of one), "" for one that stays
    for line in lines:
        word = line.strip().split(" ")[0]
        if word in ("#if", "#ifdef", "#ifndef"):
            stack.append("live" if line.strip() == "#ifdef WB_LIVE" else "")
            if stack[-1]:
                continue
        elif word == "#else" and stack[-1] == "live":
            stack[-1] = "other"
            continue
        elif word == "#endif" and stack.pop():
            continue
        if "live" not in stack and line.strip() != "#define WB_LIVE":
            yield line


def files(wanted: Iterable[str]) -> dict[str, str]:
    """These headers of ours and those that they include, by path: `{"csrc/support/launcher.h": ...}`."""
    found: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        path = f"{FOLDER}/{name.removeprefix('wb_')}"
        if path not in found:
            found[path] = text = standalone(_read(name))
            named = (n for given in _INCLUDE.findall(text) for n in (given, f"wb_{given}"))
            waiting += [n for n in named if _exists(n)]
    return dict(sorted(found.items()))


def _exists(name: str) -> bool:
    return any((folder / name).is_file() for folder in _folders())


@cache
def _read(name: str) -> str:
    path = next(folder / name for folder in _folders() if (folder / name).is_file())
    return path.read_text(encoding="utf-8")


def _folders() -> tuple[Path, ...]:
    return Path(__file__).with_name("templates") / "cpp", Path(headers.FOLDER)
