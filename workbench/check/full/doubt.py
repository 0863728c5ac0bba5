"""A second opinion where a result is just beyond what is allowed: was the reference only lucky on these numbers?

On few elements, or where terms cancel, the reference's own error may happen to be next to nothing. Then it is looked
at again on inputs that differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ...case import SEED, Case
from ...inputs import FLOATS
from ..expect import Expected, Output, widened
from .classes import leaves_of
from .layouts import replaced

DOUBT = 16.0  # times what is allowed: beyond that it is no matter of luck
ALIKE = 8  # inputs that are looked at


def doubtful(share: float) -> bool:
    """Is a result that much beyond the limit, which is 1.0, that it is worth a second look?"""
    return 1.0 < share <= DOUBT


def second_opinion(wanted: Expected, answer: Callable[[Case], Expected]) -> Expected:
    """The same expectation, with the largest error that the reference makes on alike inputs.

    >>> second_opinion(wanted, lambda case: expected(reference, schema, case)).outputs[0].own.max()

    `answer` is what gave `wanted`. Results of `compare` are left as they are.
    """
    own: dict[str, Tensor] = {}
    for k in range(ALIKE):
        try:
            other = answer(_alike(wanted, k))
        except Exception:  # a reference that looks at values: then this opinion is not to be had
            return wanted
        for o in other.outputs:
            if o.name in own and o.true.shape != own[o.name].shape:
                return wanted
            off = _error(o)
            own[o.name] = torch.maximum(own[o.name], off) if o.name in own else off
    outputs = tuple(
        replace(o, own=own[o.name]) if o.name in own and own[o.name].shape == o.true.shape else o
        for o in wanted.outputs
    )
    return replace(wanted, outputs=outputs)


def _error(o: Output) -> Tensor:
    value, true = widened(o.value), widened(o.true)
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=torch.float64)
    return torch.where(value.isfinite() & true.isfinite(), (value - true).abs(), 0)


def _alike(wanted: Expected, seed: int) -> Case:
    """The case with its floats changed in their last bits."""
    case, schema = wanted.case, wanted.schema

    def recipe() -> tuple[tuple, dict]:
        named = case.bound(schema)
        made = {
            n: _shaken(x, SEED + seed)
            for n, x in leaves_of(named).items()
            if x.dtype in FLOATS and x.dtype.itemsize > 1
        }
        changed = replaced(named, made)
        return tuple(changed[a.name] for a in schema.positional), {a.name: changed[a.name] for a in schema.keyword_only}

    return replace(case, recipe=recipe)


def _shaken(x: Tensor, seed: int) -> Tensor:
    chance = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = (x.double() * (1 + 4 * torch.finfo(x.dtype).eps * (2 * chance - 1))).to(x.dtype)
    return torch.where(moved.isfinite(), moved, x)
