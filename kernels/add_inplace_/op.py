"""Add into a tensor in place: a mutating op, which returns nothing."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::add_inplace_", mutates="x")
def add_inplace_(x: Tensor, y: Tensor, alpha: float = 1.0) -> None:
    """x += alpha * y."""
    x.add_(y, alpha=alpha)


@add_inplace_.cases(dtypes=(torch.float32, torch.bfloat16))
def _(t):
    base = t(2, 4, 128)
    yield t(4, 128), t(4, 128)
    yield wb.case("odd", t(5, 123), t(5, 123), alpha=-0.5)
    yield wb.case("views of one base", base[0], base[1], 2.0)
    yield wb.case("large", t(4096, 4096), t(4096, 4096), bench=True)
