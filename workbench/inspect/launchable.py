"""What a launch asks for, held against what a GPU takes: said where there is no GPU to refuse it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .. import gpu
from ..directives import Declaration
from ..directives.evaluate import values
from ..directives.nodes import Expression, Launch
from ..errors import WorkbenchError
from .occupancy import LIMITS, THREADS_A_BLOCK

UNKNOWN = (WorkbenchError, TypeError, AttributeError, RuntimeError, ArithmeticError, KeyError)


def refused(declaration: Declaration, arguments: Mapping[str, object], arch: str) -> str:
    """The first launch that no GPU takes with these arguments, in the words of a launcher; "" if nothing is wrong.

    >>> refused(declaration, {"x": torch.empty(24, 96)}, "sm_90")
    'block = 2048: the block is 2048, a block has at most 1024 threads (line 8)'

    What these arguments do not tell is passed over, and so are calls on nothing.
    """
    if any(isinstance(t, torch.Tensor) and not t.numel() for t in arguments.values()):
        return ""
    number = int("".join(c for c in arch if c.isdigit()))
    nothing = {a.name: None for a in declaration.arguments}
    known = values(declaration, {**nothing, "sm_count": gpu.sm_count(), **arguments})
    for launch in declaration.launches:
        for word, expressions, wrong in _asked(launch, number):
            sizes = _sizes(known, expressions)
            said = wrong(sizes) if sizes else ""
            if said:
                return f"{word} = {', '.join(e.text for e in expressions)}: {said} (line {expressions[0].line})"
    return ""


def _asked(launch: Launch, arch: int) -> Iterator[tuple[str, Sequence[Expression], Callable]]:
    yield "grid", launch.grid, _grid
    yield "block", launch.block, _block
    if launch.shared is not None:
        yield "shared", (launch.shared,), lambda sizes: _shared(sizes[0], arch)


def _sizes(known: Any, expressions: Sequence[Expression]) -> tuple[int, ...]:
    try:
        return tuple(int(known.value(e)) for e in expressions)
    except UNKNOWN:
        return ()


def _grid(sizes: tuple[int, ...]) -> str:
    told = f"the grid is {_shown(sizes)}"
    if min(sizes) < 1:
        cure = "write cdiv(a, b) for a // b, or max(1, ...) where there may be no work"
        return f"{told}, it needs at least 1 block; {cure}"
    if max(sizes[1:], default=0) > 65535:
        return f"{told}, its second and third size are at most 65535; put the largest first"
    return f"{told}, its first size is at most 2147483647" if sizes[0] > 2**31 - 1 else ""


def _block(sizes: tuple[int, ...]) -> str:
    told = f"the block is {_shown(sizes)}"
    if min(sizes) < 1:
        return f"{told}, it needs at least 1 thread"
    if math.prod(sizes) > THREADS_A_BLOCK:
        return f"{told}, a block has at most {THREADS_A_BLOCK} threads"
    return f"{told}, its third size is at most 64" if sizes[2:] > (64,) else ""


def _shared(size: int, arch: int) -> str:
    if size < 0:
        return f"{size} bytes of shared memory, which is negative"
    limits = LIMITS.get(arch)
    most = 1024 * (limits.shared_kb - (arch >= 80)) if limits else size
    if size <= most:
        return ""
    return f"{size} bytes of shared memory are more than the {most} that a block may have on this GPU (sm_{arch})"


def _shown(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"


__all__ = ["refused"]
