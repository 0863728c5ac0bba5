"""Directional derivatives: the slope of the op itself, near kinks too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import gone
from workbench.check.full.derivatives import directional
from workbench.check.sample import Sample


def sample(op):
    return Sample(op, op.case_list()[0], "cpu", "full")


@pytest.fixture
def shrink():
    """Kinks at -k and k: a wide step crosses many of them."""
    gone("derivatives::shrink")

    @wb.op("derivatives::shrink")
    def shrink(x: Tensor, k: float = 0.5) -> Tensor:
        return x.sign() * (x.abs() - k).clamp(min=0)

    shrink.cases(lambda t: [t(5, 123)])
    return shrink


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_with_kinks_is_the_slope(shrink, dtype):
    shrink.cases(dtypes=(dtype,))(lambda t: [t(5, 123)])
    found = directional(sample(shrink))
    assert found.status == "pass", found.detail


@pytest.mark.parametrize("factor", [0.0, 0.5, -1.0, 2.0])
def test_a_gradient_that_is_none_is_found_with_kinks_too(shrink, factor):
    shrink.backward(lambda grad_out, x, k: factor * grad_out * (x.abs() > k))
    found = directional(sample(shrink))
    assert found.status == "fail" and found.detail.startswith("grad_x gives a slope of "), found
    assert found.cure == "The backward is not the forward's derivative: look at its formula."
