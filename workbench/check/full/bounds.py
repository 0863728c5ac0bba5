"""The numbers at which a kernel may go wrong: its blocks, tiles and vector widths, from directives and text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...directives import Declaration
from ...source import Source, code

LEAST, MOST = 2, 1 << 17
USUAL = (32, 128)  # a warp, a vector loop: tried where nothing else is written
AT_MOST = 12
_NUMBER = re.compile(r"(?<![\w.])(?:(\d+)\s*<<\s*(\d+)|(0[xX][0-9a-fA-F]+|\d+))(?![\w.]|\s*<<)")


@dataclass(frozen=True)
class Bound:
    """One number, and where it stands: `block = 256` on line 4, or the text of that line."""

    number: int
    where: str
    line: int = 0
    is_block: bool = False  # does the declaration say that it is a size of blocks?


def bounds(source: Source | None, declaration: Declaration | None) -> tuple[Bound, ...]:
    """The numbers worth trying sizes around, those of directives first.

    >>> [b.number for b in bounds(source, declaration)]
    [256, 16]
    """
    found: dict[int, Bound] = {}
    for bound in (*_declared(declaration), *_written(source), *(Bound(n, "usual") for n in USUAL)):
        if LEAST <= bound.number <= MOST:
            found.setdefault(bound.number, bound)
    return tuple(found.values())[:AT_MOST]


def _declared(declaration: Declaration | None) -> Iterable[Bound]:
    if declaration is None:
        return
    for tune in declaration.tunes.values():
        for value in tune.values:
            if isinstance(value, int):
                yield Bound(value, f"tune {tune.name} = {', '.join(map(str, tune.values))}", tune.line, is_block=True)
    for launch in declaration.launches:
        named = {"block": launch.block, "grid": launch.grid, "shared": (launch.shared,) if launch.shared else ()}
        for what, expressions in named.items():
            for e in expressions:
                for node in ast.walk(e.tree):
                    if isinstance(node, ast.Constant) and type(node.value) is int:
                        yield Bound(node.value, f"{what} = {e.text}", e.line or launch.line, what == "block")


def _written(source: Source | None) -> Iterable[Bound]:
    """The integers in the code itself, comments and strings left out; what names of types hold is none."""
    if source is None:
        return
    lines = source.text.splitlines()
    plain = source.text if source.language == "triton" else code(source.text)
    aligned = plain.splitlines() if plain.count("\n") == source.text.count("\n") else lines
    for at, line in enumerate(aligned):
        if line.lstrip().startswith(("//", "#")):
            continue
        for found in _NUMBER.finditer(line):
            number = (
                int(found[1]) << min(int(found[2]), 40) if found[2] else int(found[3], 0) if not _octal(found[3]) else 0
            )
            yield Bound(number, lines[at].strip(), source.first_line + at)


def _octal(text: str) -> bool:
    return len(text) > 1 and text.isdigit() and text[0] == "0"
