"""A linear layer with GELU in one kernel: gelu(x @ w.T + b), the exact form with erf (Hendrycks and Gimpel, 2016)."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::gelu_linear", returns=("y",), saves=("z",))
def gelu_linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """x (M, K), w (N, K), b (N,) -> (M, N); z, what goes into GELU, is kept for backward."""
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))


@gelu_linear.cases(dtypes=(torch.float32, torch.bfloat16))
def _(t):
    yield t(16, 32), t(24, 32), t(24)
    yield wb.case("odd", t(17, 33), t(5, 33), t(5))
    yield wb.case("several tiles", t(70, 130), t(90, 130), t(90))
    yield wb.case("no rows", t(0, 16), t(8, 16), t(8))
    yield wb.case("mlp", t(4096, 4096), t(16384, 4096), t(16384), bench=True)
