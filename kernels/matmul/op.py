"""Matrix product of two matrices: out = a b."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of an M x K and a K x N matrix."""
    return a @ b


@matmul.cases(dtypes=(torch.float32, torch.float16, torch.bfloat16))
def _(t):
    yield t(65, 130), t(130, 33)
    yield wb.case("square", t(64, 64), t(64, 64))
    yield wb.case("a row", t(1, 70), t(70, 5))
    yield wb.case("long sums", t(7, 600), t(600, 40))
    yield wb.case("1024", t(1024, 1024), t(1024, 1024), bench=True)
    if torch.cuda.is_available():
        yield wb.case("4096", t(4096, 4096), t(4096, 4096), bench=True)
