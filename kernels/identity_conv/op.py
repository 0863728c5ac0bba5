"""The identity through a convolution; the object that the op takes holds the kernel and counts the calls."""

import torch
from torch import Tensor

import workbench as wb


@wb.fake_class("conv_lib::ConvState", example=lambda: torch.classes.conv_lib.ConvState(2))
class ConvState:
    """What stands for an object while a graph is traced."""

    def __init__(self, weight, calls):
        self._weight, self._calls = weight, calls

    @classmethod
    def __obj_unflatten__(cls, flat):
        return cls(**dict(flat))

    def __obj_flatten__(self):
        return (("weight", self._weight), ("calls", self._calls))

    def calls(self):
        return self._calls

    def weight(self):
        return self._weight


@wb.op("conv_lib::identity_conv")
def identity_conv(x: Tensor, state: ConvState) -> Tensor:
    """x, [N, channels, H, W], contiguous; `state` is a `torch.classes.conv_lib.ConvState(channels, size)`."""
    return x.contiguous().clone()


@identity_conv.cases(dtypes=(torch.float32, torch.float64))
def _(t):
    yield t(2, 3, 8, 8), torch.classes.conv_lib.ConvState(3)
    yield wb.case("wide", t(1, 4, 5, 7), torch.classes.conv_lib.ConvState(4, 5))
