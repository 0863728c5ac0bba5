"""Softmax over the last dimension, with a scale: exp(k x) / sum(exp(k x))."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::softmax", returns=("y",))
def softmax(x: Tensor, k: float = 1.0) -> Tensor:
    """Each row of k x as probabilities."""
    return torch.softmax(x * k, -1)


@softmax.cases(dtypes=(torch.float32, torch.float16, torch.bfloat16))
def _(t):
    yield t(4, 128)
    yield wb.case("odd", t(5, 123), 0.5)
    yield wb.case("large values", t(3, 40, low=-60, high=60))
    masked = t(4, 50)
    masked[:, ::3] = -float("inf")
    yield wb.case("masked", masked)
    yield wb.case("one column", t(3, 1))
    yield wb.case("longer than a block", t(2, 1500), 2.0)
    yield wb.case("vocabulary", t(4096, 32000), bench=True)
