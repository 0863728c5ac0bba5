"""Pieces of a CUDA text with the user's own places: read in, put together for a compiler, found again in its messages.

A piece is called after its number, and its lines begin with 1, so that an edit elsewhere in the cell changes nothing of
what the compiler of this half reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..cuda_marks import blanked
from ..errors import BuildError, Diagnostic
from ..source import Source
from .body_parts import line_directive
from .result import Build

_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"')
_LABEL = re.compile(r"\bwb-piece-(\d+)(?:([:(])(\d+))?")
_NAMES_ITS_PLACE = re.compile(r"\bassert\b|__FILE__|__LINE__|\bsource_location\b|\b[A-Z]+_ERROR_CODE_CHECK\b")


@dataclass(frozen=True)
class Row:
    """One line of a text, with the place where the user has it."""

    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Piece:
    """A part of a text that begins on `line` of `file`."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Text:
    """What a compiler reads of some pieces, and whose lines these are."""

    pieces: tuple[Piece, ...]

    @property
    def names_its_place(self) -> bool:
        """Does the binary hold file names or line numbers? Then they must be the user's."""
        return any(_NAMES_ITS_PLACE.search(blanked(p.text)) for p in self.pieces)

    def render(self) -> str:
        rows = []
        for number, p in enumerate(self.pieces):
            file, line = self.place(number, p)
            rows += [line_directive(line, file), p.text]
        return "\n".join([*rows, ""])

    def place(self, number: int, piece: Piece) -> tuple[str, int]:
        return (piece.file, piece.line) if self.names_its_place else (f"wb-piece-{number}", 1)

    def written(self, file: str, line: int) -> tuple[str, int]:
        """The place that the compiler is told for one of the user's: the last piece that begins there or before."""
        mine = [(p.line, n) for n, p in enumerate(self.pieces) if p.file == file and p.line <= line]
        if not mine:
            return file, line
        begin, number = max(mine)
        label, first = self.place(number, self.pieces[number])
        return label, first + line - begin

    def back(self, file: str, line: int) -> tuple[str, int]:
        """The user's place for one in the compiler's messages."""
        match = _LABEL.fullmatch(file)
        if not match or int(match[1]) >= len(self.pieces):
            return file, line
        piece = self.pieces[int(match[1])]
        return piece.file, piece.line + line - 1 if line else 0

    def build(self, built: Build) -> Build:
        """A build with its messages on the user's lines."""
        return replace(built, diagnostics=tuple(map(self.diagnostic, built.diagnostics)), log=self.log(built.log))

    def error(self, error: BuildError) -> BuildError:
        file, line = self.back(error.file, error.line)
        said = tuple(map(self.diagnostic, error.diagnostics))
        return BuildError(error.message, diagnostics=said, log=self.log(error.log), line=line, file=file)

    def diagnostic(self, found: Diagnostic) -> Diagnostic:
        file, line = self.back(found.file, found.line)
        return replace(found, file=file, line=line)

    def log(self, text: str) -> str:
        def user(m: re.Match) -> str:
            file, line = self.back(f"wb-piece-{m[1]}", int(m[3] or 0))
            return f"{file}{m[2]}{line}" if m[2] else file

        return _LABEL.sub(user, text)


def rows_of(source: Source, folders: Sequence[str]) -> list[Row]:
    """The lines of a text, with those of the user's quoted headers in place of their includes; each header once."""
    seen: set[str] = set()
    plain = source.text.split("\n")
    return list(_rows(plain, source.file, source.first_line, [source.path, *folders], seen))


def _rows(lines: Sequence[str], file: str, first: int, folders: Sequence[str], seen: set[str]) -> list[Row]:
    found = []
    for number, text in enumerate(lines, first):
        match = _QUOTED.match(text)
        path = _lookup(match[1], folders) if match else ""
        if not path:
            found.append(Row(text, file, number))
        elif path not in seen:
            seen.add(path)
            with open(path, encoding="utf-8", errors="replace") as header:
                inner = re.sub(r"(?m)^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*", "", header.read()).split("\n")
            found += _rows(inner, path, 1, [os.path.dirname(path), *folders], seen)
    return found


def _lookup(name: str, folders: Sequence[str]) -> str:
    places = (os.path.normpath(os.path.join(f, name)) for f in folders if f or os.path.isabs(name))
    return next((p for p in places if os.path.isfile(p)), "")


__all__ = ["Piece", "Row", "Text", "rows_of"]
