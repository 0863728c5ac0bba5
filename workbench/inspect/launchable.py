"""What a launch asks for, held against what a GPU takes: said where there is no GPU to refuse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import gpu
from ..directives import Declaration, geometry
from ..directives.evaluate import values
from ..directives.nodes import Expression
from ..errors import WorkbenchError

FIRST_WITH_CLUSTERS = 90
UNKNOWN = (WorkbenchError, TypeError, AttributeError, RuntimeError, ArithmeticError, KeyError)


def refused(declaration: Declaration, arguments: Mapping[str, object], arch: str) -> str:
    """The first launch that no GPU takes with these arguments, in the words of a launcher; "" if nothing is wrong.

    >>> refused(declaration, {"x": torch.empty(24, 96)}, "sm_90")
    'block = n // 2: the block is 2048, a block has at most 1024 threads (line 8)'

    What these arguments do not tell is passed over, and so are calls on nothing.
    """
    if any(isinstance(t, torch.Tensor) and not t.numel() for t in arguments.values()):
        return ""
    number = int("".join(c for c in arch if c.isdigit()))
    nothing = {a.name: None for a in declaration.arguments}
    known = values(declaration, {**nothing, "sm_count": gpu.sm_count(), **arguments})
    for launch in declaration.launches:
        found: dict[str, tuple[int, ...]] = {}
        for word, expressions, wrong in geometry.asked(launch):
            sizes = found[word] = _sizes(known, expressions)
            said = (wrong(sizes) or _beyond(word, sizes, found.get("grid", ()), number)) if sizes else ""
            if said:
                return f"{word} = {', '.join(e.text for e in expressions)}: {said} (line {expressions[0].line})"
    return ""


def _sizes(known: Any, expressions: Sequence[Expression]) -> tuple[int, ...]:
    try:
        return tuple(int(known.value(e)) for e in expressions)
    except UNKNOWN:
        return ()


def _beyond(word: str, sizes: tuple[int, ...], grid: tuple[int, ...], arch: int) -> str:
    """What this architecture, or this grid, does not take."""
    if word == "cluster":
        if arch < FIRST_WITH_CLUSTERS:
            return f"sm_{arch} has no clusters, which need sm_{FIRST_WITH_CLUSTERS} or later"
        return geometry.uneven(sizes, grid) if grid else ""
    most = gpu.shared_bytes(arch) or sizes[0]
    if word != "shared" or sizes[0] <= most:
        return ""
    return f"{sizes[0]} bytes of shared memory are more than the {most} that a block of sm_{arch} may have"


__all__ = ["refused"]
