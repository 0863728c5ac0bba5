"""a * b + c for one number c; the library that defines the op brings its own gradient in C++."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("muladd_lib::muladd")
def muladd(a: Tensor, b: Tensor, c: float) -> Tensor:
    """The product of two tensors of one shape, and a number; contiguous whatever it is given, as the library is."""
    return (a * b + c).contiguous()


@muladd.cases(dtypes=(torch.float32, torch.float64))
def _(t):
    yield t(4, 128), t(4, 128), 0.5
    yield wb.case("odd", t(5, 123), t(5, 123), -2.0)
    yield wb.case("nothing", t(0, 7), t(0, 7), 1.0)
