"""The k largest of each row with their places: two outputs, one of them integers."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::topk_with_idx", returns=("values", "indices"))
def topk_with_idx(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of the last dimension, largest first, and where they stand."""
    return torch.topk(x, k)


@topk_with_idx.compare
def _(x, k, values, indices):  # ties may come out in any order
    return values, x.gather(-1, indices)


@topk_with_idx.backward
def _(grad_values, x, indices):
    return None if grad_values is None else torch.zeros_like(x).scatter_(-1, indices, grad_values)


@topk_with_idx.cases(dtypes=(torch.float32, torch.bfloat16))
def _(t):
    yield t(4, 128), 5
    yield wb.case("all", t(3, 7), 7)
    yield wb.case("none", t(3, 7), 0)
    yield wb.case("vocabulary", t(64, 32000), 50, bench=True)
