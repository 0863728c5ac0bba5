"""Where one output differs, as data for a picture: the worst elements, and a small map of the wrong ones."""

from __future__ import annotations

import torch
from torch import Tensor

from ..report import Mismatch

ROWS, COLUMNS, WORST = 64, 96, 5


def mismatch(output: str, got: Tensor, wanted: Tensor, wrong: Tensor, unwritten: int = 0) -> Mismatch:
    """Count, worst elements and map of where `wrong` (bool, of the output's shape) is true.

    >>> mismatch("out", got, wanted, got != wanted).worst[0]
    ((2, 17), 0.0, 3.1)
    """
    differ = wrong.reshape(-1).nonzero().reshape(-1)
    far = _distance(got.reshape(-1)[differ], wanted.reshape(-1)[differ])
    order = differ[far.argsort(descending=True, stable=True)[:WORST]]
    worst = tuple(
        (_index(flat, wrong.shape), _number(got.reshape(-1)[flat]), _number(wanted.reshape(-1)[flat]))
        for flat in order.tolist()
    )
    return Mismatch(output, tuple(wrong.shape), differ.numel(), wrong.numel(), unwritten, worst, folded(wrong))


def folded(wrong: Tensor) -> tuple[tuple[float, ...], ...]:
    """A map of at most 64 x 96 cells, each the share of wrong elements in it; rows are all but the last dimension.

    >>> folded(torch.tensor([[True, False], [False, False]]))
    ((1.0, 0.0), (0.0, 0.0))
    """
    flat = wrong.reshape(-1, wrong.shape[-1] if wrong.dim() else 1) if wrong.numel() else wrong.reshape(0, 1)
    rows, columns = flat.shape
    high, wide = min(rows, ROWS), min(columns, COLUMNS)
    if not rows:
        return ()
    down = torch.arange(rows) * high // rows
    right = torch.arange(columns) * wide // columns
    marks = flat.cpu().double()
    sums = torch.zeros(high, columns, dtype=torch.float64).index_add_(0, down, marks)
    sums = torch.zeros(high, wide, dtype=torch.float64).index_add_(1, right, sums)
    counts = down.bincount(minlength=high)[:, None] * right.bincount(minlength=wide)[None]
    return tuple(tuple(round(v, 4) for v in row) for row in (sums / counts).tolist())


def _distance(got: Tensor, wanted: Tensor) -> Tensor:
    """How far apart; a NaN or infinity in the wrong place is farthest."""
    if got.is_complex():
        got, wanted = torch.view_as_real(got), torch.view_as_real(wanted)
        return _distance(got, wanted).amax(-1)
    return (got.double() - wanted.to(got.device).double()).abs().nan_to_num(float("inf"), float("inf"))


def _index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        index.append(at)
    return tuple(reversed(index))


def _number(x: Tensor) -> float:
    return abs(x.item()) if x.is_complex() else float(x.item())
