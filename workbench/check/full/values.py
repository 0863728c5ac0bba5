"""Values to put into a tensor: drawn like those of another, or the ones that people forget. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ...inputs import FLOATS, draw

LARGE = 300.0  # far beyond what exp takes in float32, and no trouble for a sum of squares in float16


def like(x: Tensor, shape: tuple[int, ...], seed: int, below: int | None = None) -> Tensor:
    """A tensor of another shape whose values are of the kind that `x` has.

    >>> like(torch.arange(5), (9,), seed=1)        # sorted integers stay sorted
    tensor([0, 0, 1, 1, 2, 3, 4, 4, 4])

    Floats are uniform between the least and the largest of `x`; a permutation stays one; other integers keep their
    range, `below` a number where they may be indices into something that has become smaller.
    """
    if not x.numel():
        plain = x.dtype is torch.bool or x.is_complex()
        return draw(shape, x.dtype, None if plain else 0, None if plain else 1 if x.dtype in FLOATS else 10, seed)
    if x.dtype is torch.bool or x.is_complex():
        return draw(shape, x.dtype, None, None, seed)
    if x.dtype in FLOATS:
        return _floats(x, shape, seed)
    if _is_permutation(x) and shape:
        order = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).argsort(-1)
        return order.to(x.dtype)
    low, high = (int(v) for v in torch.aminmax(x.long()))
    high += 1
    if below is not None and low >= 0:
        high = max(min(high, below), low + 1)
    made = draw(shape, torch.int64, low, high, seed)
    if shape and x.dim() and x.shape[-1] > 1 and bool((x.diff(dim=-1) >= 0).all()):
        made = made.sort(-1).values
    return made.to(x.dtype)


def _floats(x: Tensor, shape: tuple[int, ...], seed: int) -> Tensor:
    finite = x[x.isfinite()].double() if x.dtype.itemsize > 1 else x.double().reshape(-1)
    if not finite.numel():
        return torch.full(shape, float("nan")).to(x.dtype)
    low, high = (v.item() for v in torch.aminmax(finite))
    if low == high and finite.numel() > 1:
        return torch.full(shape, low, dtype=torch.float64).to(x.dtype)
    if low == high:
        low, high = min(low, -abs(low)), max(abs(high), low + 1e-3)
    return draw(shape, torch.float64, low, high, seed).to(x.dtype)


def _is_permutation(x: Tensor) -> bool:
    n = x.shape[-1] if x.dim() else 0
    return n > 1 and bool((x.sort(-1).values == torch.arange(n, dtype=x.dtype, device=x.device)).all())


def _placed(x: Tensor, value: float) -> Tensor:
    """A value at the first element, at the last, and at one in between."""
    x = x.clone()
    flat = x.view(-1)
    for at in {0, flat.numel() // 2, flat.numel() - 1}:
        flat[at] = value
    return x


def _denormal(x: Tensor) -> Tensor:
    """Below the smallest normal number of the dtype, with some bits left."""
    info = torch.finfo(x.dtype)
    largest = x.double().abs().max().clamp(min=1e-300)
    return (x.double() / largest * info.smallest_normal * 0.9).to(x.dtype)


def _large(x: Tensor) -> Tensor:
    largest = x.double().abs().max().clamp(min=1e-300)
    return (x.double() / largest * LARGE).to(x.dtype)


VALUES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "NaN": lambda x: _placed(x, float("nan")),
    "infinity": lambda x: _placed(x, float("inf")),
    "minus infinity": lambda x: _placed(x, float("-inf")),
    "denormal": _denormal,
    "zeros": torch.zeros_like,
    "large": _large,
}


def filled(x: Tensor, kind: str) -> Tensor | None:
    """`x` with values of a kind in VALUES; None where it has no elements, or its dtype no such values."""
    if not x.numel() or x.dtype not in FLOATS or x.dtype.itemsize < 2:
        return None
    return VALUES[kind](x.contiguous())
