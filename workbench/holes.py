"""Lists of arguments with the tensors taken out and put back: what a graph node may keep, and what a vjp varies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch

from .errors import SchemaError


class _Hole:
    """Where a tensor was, in a list of arguments that must not keep its tensors alive."""


HOLE = _Hole()


def hollow(values: Sequence) -> list:
    """`values` without their tensors, for `refill`."""
    hole = lambda v: HOLE if isinstance(v, torch.Tensor) else v  # noqa: E731
    return [[hole(t) for t in v] if isinstance(v, (list, tuple)) else hole(v) for v in values]


def refill(values: Sequence, tensors: Sequence) -> list:
    """`values` with its tensors (or holes) replaced, in order."""
    source = iter(tensors)
    place = lambda v: next(source) if v is HOLE or isinstance(v, torch.Tensor) else v  # noqa: E731
    return [[place(t) for t in v] if isinstance(v, (list, tuple)) else place(v) for v in values]


def opened(values: Sequence) -> list:
    """`values` with its lists opened: one entry for each tensor or None of tensor arguments."""
    return [t for v in values for t in (v if isinstance(v, (list, tuple)) else [v])]


def spread(gradients: object, tensors: Sequence, where: str) -> list:
    """What a backward gives for a list of tensors: one gradient (or None) for each that is there.

    Raises SchemaError, beginning with `where`, for another number of them.
    """
    found = [None] * len(tensors) if gradients is None else gradients
    if not isinstance(found, (list, tuple)) or len(found) != len(tensors):
        count = len(found) if isinstance(found, (list, tuple)) else 1
        raise SchemaError(
            f"{where} holds {len(tensors)} tensors, and backward returned {count} for it; return a list with a "
            "gradient or None for each"
        )
    return [g for g, t in zip(found, tensors, strict=True) if t is not None]


def differentiable_type(t: object) -> TypeGuard[torch.Tensor]:
    return isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())
