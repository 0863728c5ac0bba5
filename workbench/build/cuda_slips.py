"""What the text of a CUDA cell does wrong at its launches, which no compiler tells. Pure text.

A GPU would tell it with an error that names no line, or with wrong values; without a GPU nobody would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..cuda_marks import blanked
from ..directives import Declaration, geometry
from ..directives.slips import constants
from ..errors import Diagnostic, SchemaError
from ..source import Function, Source, functions
from .cuda_launches import find

_EXTERN = re.compile(r"\bextern\s+__shared__\b[^;]*?\b(?P<name>\w+)\s*\[")
_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(\s*(\w+)\s*[,)]")  # of what is computed nothing is said
_GRID = r"(?:\w+\s*::\s*)*this_grid\s*\(\s*\)"
_GROUPS = re.compile(rf"\b(\w+)\s*[={{(]\s*{_GRID}|\bgrid_group\s*&?\s*(\w+)")
_COOPERATIVE = re.compile(
    r"\bcudaLaunchCooperativeKernel|\bcuLaunchCooperativeKernel|Attribute\w*Cooperative\b|ATTRIBUTE_COOPERATIVE\b"
)
_ALONE = "blocks of a raw cell are not launched as a cooperative grid, so that some may not have begun"


def check(source: Source, declaration: Declaration, found: Sequence[Function]) -> None:
    """SchemaError, on its line, for a kernel whose launch cannot be what it needs.

    `extern __shared__` without `//! shared`, more threads than `__launch_bounds__` says, `this_grid().sync()`.
    """
    plain = blanked(source.text)
    launched = {launch.function: launch for launch in declaration.launches}
    for f in found:
        text, at = _whole(plain, f, source.first_line)

        def line(position: int, start: int = at) -> int:
            return source.first_line + plain.count("\n", 0, start + position)

        waits = grid_sync(text)
        if waits is not None:
            cure = "make it two kernels, each with a grid: the second begins when the first has ended"
            raise SchemaError(
                f"{f.name}: sync() of this_grid() waits for all blocks, but {_ALONE}; {cure}", line=line(waits)
            )
        launch = launched.get(f.name) if f.is_global else None
        extern, bounds = _EXTERN.search(text), _BOUNDS.search(text)
        if launch and extern and launch.shared is None:
            said = f"{f.name}: '{extern['name']}' is as long as '//! shared = ...' says, in bytes, and there is none"
            raise SchemaError(f"{said}: add it beside the grid, as in '//! shared = 1024'", line=line(extern.start()))
        if launch and bounds:
            size, most = geometry.threads(declaration, launch), _number(bounds[1], source.text, declaration)
            if most is not None and size > most:
                said = f"{f.name}: the block has {size} threads, __launch_bounds__({bounds[1]}) allows {most}"
                raise SchemaError(f"{said}: no GPU launches it; make them alike", line=line(bounds.start()))


def grid_sync(text: str) -> int | None:
    """Where a text without comments waits for the whole grid; None where it does not.

    >>> grid_sync("auto g = cg::this_grid(); g.sync();")
    26
    """
    names = [a or b for a, b in _GROUPS.findall(text)]
    group = "|".join([_GRID, *(rf"\b{n}" for n in names)])
    found = re.search(
        rf"(?:{group})\s*\.\s*(?:sync|barrier_arrive|barrier_wait)\s*\(|\bsync\s*\(\s*(?:{group})\s*\)", text
    )
    return found.start() if found else None


def lint(source: Source) -> tuple[Diagnostic, ...]:
    """Warnings on the launches of a host or full cell: a wait for the whole grid that `<<<>>>` launches, a kernel that
    is called without it, `extern __shared__` of no size.
    """
    plain = blanked(source.text)
    found = [*_alone(plain), *_uncalled(source, plain)]
    rows = source.text.split("\n")
    made = []
    for at, said in found:
        row = plain.count("\n", 0, at)
        made.append(Diagnostic(source.file, source.first_line + row, 0, "warning", said, rows[row].rstrip("\r")))
    return tuple(made)


def _alone(plain: str) -> Iterator[tuple[int, str]]:
    found = None if _COOPERATIVE.search(plain) else grid_sync(plain)
    if found is not None:
        said = "sync() of this_grid() waits for all blocks: launch it with cudaLaunchCooperativeKernel, not with <<<>>>"
        yield found, said


def _uncalled(source: Source, plain: str) -> Iterator[tuple[int, str]]:
    kernels = [f for f in functions(source.text, source.language, source.first_line) if f.is_global]
    for f in kernels:
        call = re.search(rf"[;{{}}]\s*(?:\w+\s*::\s*)*(\b{re.escape(f.name)})\s*(?:<[^<>;{{}}]*>)?\s*\(", plain)
        if call:
            yield call.start(1), f"{f.name} is a kernel, and is called without <<<grid, block, 0, stream>>>"
    sized = {f.name: _EXTERN.search(_whole(plain, f, source.first_line)[0]) for f in kernels}
    for launch in find(source.text):
        name = re.sub(r"<.*", "", launch.kernel, flags=re.DOTALL).rpartition("::")[2]
        extern = sized.get(name)
        if extern and launch.configuration[2:3] in ((), ("0",)):
            said = f"{name}: '{extern['name']}' is as long as <<<grid, block, bytes>>> says, and this says none"
            yield launch.start, said


def unlaunched(declaration: Declaration, found: Sequence[Function]) -> tuple[str, ...]:
    """A note on each kernel that nothing launches."""
    launched = {launch.function for launch in declaration.launches}
    left = [f for f in found if f.is_global and f.name not in launched]
    return tuple(f"{f.name} (line {f.line}) has no grid, and is not launched" for f in left)


def _whole(plain: str, f: Function, first_line: int) -> tuple[str, int]:
    """A function from the end of what stands before it to its closing brace, and where that begins."""
    at = 0
    for _ in range(f.line - first_line):
        at = plain.find("\n", at) + 1
    named = re.compile(rf"\b{re.escape(f.name)}\s*\(").search(plain, at)
    begin = max(plain.rfind(";", 0, at), plain.rfind("}", 0, at)) + 1
    if named is None:
        return "", begin
    body = plain.find("{", _end(plain, named.end() - 1, "()"))
    return (plain[begin : _end(plain, body, "{}")], begin) if body >= 0 else ("", begin)


def _end(plain: str, at: int, pair: str) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for m in re.compile(f"[{re.escape(pair)}]").finditer(plain, at):
        depth += 1 if m[0] == pair[0] else -1
        if depth == 0:
            return m.end()
    return len(plain)


def _number(word: str, text: str, declaration: Declaration) -> int | None:
    """What a number, a tuned name or a constant of the text stands for; None where that is not plain."""
    if word in declaration.tunes:
        return int(declaration.tunes[word].values[0])
    word = constants(text).get(word, word)
    return int(word) if re.fullmatch(r"\d+", word) else None


__all__ = ["check", "grid_sync", "lint", "unlaunched"]
