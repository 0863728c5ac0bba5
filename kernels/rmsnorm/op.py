"""RMS normalisation over the last dimension, as in Llama: y = x / rms(x) * w (Zhang and Sennrich, 2019)."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::rmsnorm", returns=("y",), saves=("rstd",))
def rmsnorm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    """Scale each row of x by the reciprocal of its root mean square, then by w."""
    xf = x.float()
    return (xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


@rmsnorm.cases(dtypes=(torch.float32, torch.float16, torch.bfloat16))
def _(t):
    yield t(4, 128), t(128)
    yield wb.case("odd", t(5, 123), t(123))
    yield wb.case("one column", t(3, 1), t(1))
    yield wb.case("no rows", t(0, 16), t(16))
    yield wb.case("llama", t(8192, 4096), t(4096), bench=True)
