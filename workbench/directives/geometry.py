"""What every GPU asks of the size of a launch, in the words of a launcher. Constants that break it are told at once."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence

from ..errors import SchemaError
from .nodes import Declaration, Expression, Launch, Let
from .vocabulary import FUNCTIONS

THREADS_A_BLOCK, BLOCKS_A_CLUSTER, DEPTH_OF_A_BLOCK, ROWS_OF_A_GRID = 1024, 8, 64, 65535
Sizes = tuple[int, ...]


def check(declaration: Declaration) -> None:
    """SchemaError, on its line, for a launch whose sizes are constants that no GPU takes.

    `block = 2048`, `grid = 0`, and `block = BLOCK` where `tune BLOCK = 2048` comes first. What depends on an argument
    is the launcher's to refuse.
    """
    from .evaluate import values

    fixed = _constants(declaration)
    known = values(declaration, {a.name: None for a in declaration.arguments})
    for launch in declaration.launches:
        for _, expressions, wrong in asked(launch):
            if all(_names(e) <= fixed for e in expressions):
                said = wrong(tuple(int(known.value(e)) for e in expressions))
                if said:
                    raise SchemaError(f"{launch.function}: {said}", line=expressions[0].line)
        if launch.cluster and all(_names(e) <= fixed for e in (*launch.grid, *launch.cluster)):
            sizes = [tuple(int(known.value(e)) for e in part) for part in (launch.cluster, launch.grid)]
            said = uneven(*sizes)
            if said:
                raise SchemaError(f"{launch.function}: {said}", line=launch.cluster[0].line)


def threads(declaration: Declaration, launch: Launch) -> int:
    """How many threads a block of this launch has where that is a constant, else 0."""
    from .evaluate import values

    fixed = _constants(declaration)
    if not all(_names(e) <= fixed for e in launch.block):
        return 0
    known = values(declaration, {a.name: None for a in declaration.arguments})
    return math.prod(int(known.value(e)) for e in launch.block)


def _constants(declaration: Declaration) -> set[str]:
    """The names whose values no argument changes; a tuned one counts with its first value."""
    fixed = set(declaration.tunes)
    for s in declaration.statements:
        if isinstance(s, Let) and _names(s.value) <= fixed:
            fixed.add(s.name)
    return fixed


def _names(e: Expression) -> set[str]:
    return {n.id for n in ast.walk(e.tree) if isinstance(n, ast.Name)} - set(FUNCTIONS)


def asked(launch: Launch) -> Iterator[tuple[str, Sequence[Expression], Callable[[Sizes], str]]]:
    """The directives of a launch, each with its sizes and with what says what is wrong with them, "" for nothing."""
    yield "grid", launch.grid, grid
    yield "block", launch.block, block
    if launch.shared is not None:
        yield "shared", (launch.shared,), shared
    if launch.cluster:
        yield "cluster", launch.cluster, cluster


def grid(sizes: Sizes) -> str:
    told = f"the grid is {shown(sizes)}"
    if min(sizes) < 1:
        cure = "write cdiv(a, b) for a // b, or max(1, ...) where there may be no work"
        return f"{told}, it needs at least 1 block; {cure}"
    if max(sizes[1:], default=0) > ROWS_OF_A_GRID:
        return f"{told}, its second and third size are at most {ROWS_OF_A_GRID}; put the largest first"
    return f"{told}, its first size is at most 2147483647" if sizes[0] > 2**31 - 1 else ""


def block(sizes: Sizes) -> str:
    told = f"the block is {shown(sizes)}"
    if min(sizes) < 1:
        return f"{told}, it needs at least 1 thread"
    if math.prod(sizes) > THREADS_A_BLOCK:
        return f"{told}, a block has at most {THREADS_A_BLOCK} threads"
    return f"{told}, its third size is at most {DEPTH_OF_A_BLOCK}" if sizes[2:] > (DEPTH_OF_A_BLOCK,) else ""


def shared(sizes: Sizes) -> str:
    return f"{sizes[0]} bytes of shared memory, which is negative" if sizes[0] < 0 else ""


def cluster(sizes: Sizes) -> str:
    fits = min(sizes) >= 1 and math.prod(sizes) <= BLOCKS_A_CLUSTER
    return "" if fits else f"the cluster is {shown(sizes)}, it has 1 to {BLOCKS_A_CLUSTER} blocks"


def uneven(cluster: Sizes, grid: Sizes) -> str:
    """What is wrong with a cluster in this grid, "" for nothing."""
    filled = [(*sizes, 1, 1)[:3] for sizes in (cluster, grid)]
    if all(g % c == 0 for c, g in zip(*filled, strict=True)):
        return ""
    return f"the cluster {filled[0]} does not divide the grid {filled[1]}"


def shown(sizes: Sizes) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"


__all__ = ["asked", "check", "threads", "uneven"]
