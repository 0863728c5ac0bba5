"""Where one output differs, as data for a picture: the worst elements, small maps, how large the errors are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..reports.report import Mismatch

ROWS, COLUMNS, WORST = 64, 96, 5
LEAST, MOST = -9, 3  # powers of ten of relative errors that are told apart
NONE, NOT_FINITE = None, 99


def mismatch(
    output: str,
    got: Tensor,
    wanted: Tensor,
    wrong: Tensor,
    unwritten: int = 0,
    inputs: Mapping[str, object] | None = None,
) -> Mismatch:
    """Count, worst elements and maps of where `wrong` (bool, of the output's shape) is true.

    >>> mismatch("out", got, wanted, got != wanted).worst[0]
    ((2, 17), 0.0, 3.1)

    `inputs` are the arguments by name: what of them meets a worst element is told beside it.
    """
    differ = wrong.reshape(-1).nonzero().reshape(-1)
    far = _distance(got.reshape(-1)[differ], wanted.reshape(-1)[differ])
    order = differ[far.argsort(descending=True, stable=True)[:WORST]]
    worst = tuple(
        (_index(flat, wrong.shape), _number(got.reshape(-1)[flat]), _number(wanted.reshape(-1)[flat]))
        for flat in order.tolist()
    )
    off = _distance(got, wanted).cpu()
    met = tuple(_met(index, tuple(wrong.shape), inputs or {}) for index, _, _ in worst)
    return Mismatch(
        output,
        tuple(wrong.shape),
        differ.numel(),
        wrong.numel(),
        unwritten,
        worst,
        folded(wrong),
        _folded_errors(off),
        histogram(off, wanted),
        met if any(met) else (),
    )


def histogram(off: Tensor, wanted: Tensor) -> tuple[tuple[int | None, int], ...]:
    """How many elements have a relative error of which power of ten; None is none, 99 is NaN in the wrong place.

    >>> histogram(torch.tensor([0.0, 0.05]), torch.tensor([1.0, 2.0]))
    ((None, 1), (-2, 1))
    """
    off, scale = off.reshape(-1), wanted.detach().reshape(-1).cpu()
    scale = (scale.abs() if scale.is_complex() else scale.double().abs()).nan_to_num(0, 0, 0)
    counts: dict[int | None, int] = {}
    if exact := int((off == 0).sum()):
        counts[NONE] = exact
    finite = (off > 0) & off.isfinite()
    relative = off[finite] / scale[finite].clamp(min=1e-300)
    powers = (relative.log10() + 1e-9).floor().clamp(LEAST, MOST).long()
    counts |= dict(zip(*(t.tolist() for t in powers.unique(return_counts=True)), strict=True))
    if lost := int((~off.isfinite()).sum()):
        counts[NOT_FINITE] = lost
    return tuple(counts.items())


def _folded_errors(off: Tensor) -> tuple[tuple[float, ...], ...]:
    """The largest error of each cell of the map, as a share of the largest of all."""
    flat = off.reshape(-1, off.shape[-1] if off.dim() else 1) if off.numel() else off.reshape(0, 1)
    rows, columns = flat.shape
    if not rows:
        return ()
    high, wide = min(rows, ROWS), min(columns, COLUMNS)
    finite = flat[flat.isfinite()]
    largest = finite.max().item() if finite.numel() else 0.0
    shares = (flat / largest if largest else flat).nan_to_num(1.0, 1.0).double()
    down = (torch.arange(rows) * high // rows)[:, None].expand(rows, columns)
    right = (torch.arange(columns) * wide // columns)[None].expand(rows, columns)
    cells = torch.zeros(high * wide, dtype=torch.float64)
    cells.scatter_reduce_(0, (down * wide + right).reshape(-1), shares.reshape(-1), "amax")
    return tuple(tuple(float(f"{v:.2g}") for v in row) for row in cells.view(high, wide).tolist())


def _met(index: tuple[int, ...], shape: tuple[int, ...], inputs: Mapping[str, object]) -> str:
    """The elements of the inputs that stand where the output's does, as broadcasting has it: `x[2, 17]=0.5`.

    Where an input has other sizes, nobody knows which of its elements it is.
    """
    said = []
    for name, x in inputs.items():
        if not isinstance(x, Tensor):
            continue
        if x.dim() > len(index):
            continue
        skipped = len(index) - x.dim()
        at = index[skipped:]
        if all(n in (1, m) for n, m in zip(x.shape, shape[skipped:], strict=True)):
            place = tuple(0 if n == 1 else i for i, n in zip(at, x.shape, strict=True))
            said.append(f"{name}{list(place) if place else ''}={_number(x[place]):.6g}")
    return ", ".join(said[:4])


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
    got, wanted = got.double(), wanted.to(got.device).double()
    off = (got - wanted).abs().nan_to_num(float("inf"), float("inf"))
    return torch.where((got == wanted) | (got.isnan() & wanted.isnan()), 0, off)


def _index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        index.append(at)
    return tuple(reversed(index))


def _number(x: Tensor) -> float:
    return abs(x.item()) if x.is_complex() else float(x.item())
