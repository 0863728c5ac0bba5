"""Triton's own stages, TTIR and TTGIR, on the user's lines: MLIR text with its `loc(...)`. Pure text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..reports.inspection import Entry
from .assembly import is_file

DEFINED = re.compile(r"^#(\w+) = (loc\(.*\))\s*$")
BEGIN = re.compile(r"\s*\bloc\(")
PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+(?: to (?::\d+)?:\d+)?')
NAME = re.compile(r'"(?:[^"\\]|\\.)*"\(')


def parse(text: str, file: str) -> tuple[Entry, ...]:
    """The text without its locations, each line with the source lines that its last location says.

    >>> parse('%0 = arith.addi %a, %b : i32 loc(#loc1)\\n#loc1 = loc("cell":9:20)', "cell")
    (Entry(text='%0 = arith.addi %a, %b : i32', line=9, callers=()),)
    """
    rows = text.splitlines()
    known = {m[1]: m[2] for row in rows if (m := DEFINED.match(row))}
    found: list[Entry] = []
    opened: list[int] = []  # where the regions begin that are not closed yet: their place stands at their end
    for row in rows:
        if DEFINED.match(row) or not row.strip():
            continue
        plain, last = _without_locations(row)
        places = _Reader(last, known).chain() if last else []
        lines = tuple(dict.fromkeys(n for f, n in places if is_file(f, file)))
        text = plain.strip()
        if text.startswith("^"):
            lines = ()
        if text.startswith("}") and opened:
            begun = opened.pop()
            if found[begun].text.lstrip().startswith(("module", "tt.func")):
                lines = ()
            else:
                found[begun] = _entry(found[begun].text, lines)
        if text.endswith("{"):
            opened.append(len(found))
            lines = ()
        found.append(_entry(plain, lines))
    return tuple(found)


def _entry(text: str, lines: tuple[int, ...]) -> Entry:
    return Entry(text.rstrip(), lines[0] if lines else 0, lines[1:])


def _without_locations(row: str) -> tuple[str, str]:
    """(the row without any `loc(...)`, the last of these)"""
    plain, last = "", ""
    while begin := BEGIN.search(row):
        end, depth, quoted = begin.end(), 1, False
        while end < len(row) and depth:
            quoted ^= row[end] == '"'
            depth += 0 if quoted else (row[end] == "(") - (row[end] == ")")
            end += 1
        plain, last, row = plain + row[: begin.start()], row[begin.start() : end].strip(), row[end:]
    return plain + row, last


@dataclass
class _Reader:
    """Reads one location, following the names of others."""

    text: str
    known: Mapping[str, str]
    at: int = 0
    seen: frozenset[str] = frozenset()

    def chain(self) -> list[tuple[str, int]]:
        """(file, line) of the place and of those that it was inlined into, the innermost first."""
        self.take("loc(")
        if self.take("#"):
            name = self.word()
            if name in self.seen or name not in self.known:
                return []
            return _Reader(self.known[name], self.known, 0, self.seen | {name}).chain()
        if self.take("callsite("):
            return self.parts(" at ")
        if self.take("fused"):
            if self.take("<"):
                self.at = self.text.find("[", self.at)
            self.take("[")
            return self.parts(", ")
        if place := PLACE.match(self.text, self.at):
            self.at = place.end()
            return [(place[1], int(place[2]))]
        if named := NAME.match(self.text, self.at):
            self.at = named.end()
            inner = self.chain()
            self.take(")")
            return inner
        self.word()  # unknown
        return []

    def parts(self, between: str) -> list[tuple[str, int]]:
        found = self.chain()
        while self.take(between):
            found += self.chain()
        self.at += 1
        return found

    def take(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def word(self) -> str:
        found = re.compile(r"\w*").match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0]
