"""Symmetric int8 quantisation of a whole tensor: q = round(x / scale), scale = max |x| / 127."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::int8_quantise", returns=("q", "scale"))
def int8_quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as int8 and the one scale that brings it back: x is about q * scale."""
    scale = x.abs().amax().float().clamp(min=1e-8) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


@int8_quantise.compare  # a value half way between two steps may round either way
def _(x, q, scale):
    return ((q * scale - x).abs() / scale).clamp(min=0.5), scale


@int8_quantise.cases(dtypes=(torch.float32, torch.bfloat16))
def _(t):
    yield t(4, 128)
    yield wb.case("odd", t(5, 123))
    yield wb.case("zeros", torch.zeros(3, 7))
    yield wb.case("a scalar", t())
    yield wb.case("weights", t(4096, 4096), bench=True)
