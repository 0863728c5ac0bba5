"""A rectifier with a slope on its negative side: x where x > 0, alpha * x elsewhere."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::smooth_relu")
def smooth_relu(x: Tensor, alpha: float = 0.1) -> Tensor:
    """x where it is positive, alpha * x elsewhere."""
    return torch.where(x > 0, x, alpha * x)


@smooth_relu.cases(dtypes=(torch.float32, torch.float64, torch.bfloat16))
def _(t):
    yield t(4, 128), 0.1
    yield wb.case("odd", t(5, 123))
    yield wb.case("one number", t())
    yield wb.case("nothing", t(0, 7))
    yield wb.case("large", t(4096, 4096), bench=True)
