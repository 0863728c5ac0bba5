"""kernels/adam_: lists of tensors changed in place by a host cell with intrinsics."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.errors import TrialError

FOLDER = Path(__file__).parents[2] / "kernels" / "adam_"
TEXT = (FOLDER / "adam_.cpp").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def adam_():
    [op] = wb.load(FOLDER)
    return op


def state(count: int = 3):
    torch.manual_seed(0)
    shapes = (7, 9), (64,), (1,)
    return [[torch.rand(shapes[i % 3]) for i in range(count)] for _ in range(4)]


def test_it_loads_and_agrees(adam_):
    version = adam_.runs("forward", "cpu")
    assert version.tier == "host" and version.title.startswith("Eight elements at a time")
    statuses = {o.case: o.status for o in version.trial.outcomes}
    assert statuses == {"4 tensors": "agree", "late": "agree", "nothing": "skip"}


def test_it_checks(adam_):
    report = adam_.check()
    assert report.ok, str(report)


def test_it_is_adam(adam_):
    """Three steps, beside torch's own optimiser."""
    params, grads, m, v = state()
    theirs = [p.clone().requires_grad_() for p in params]
    m, v = [torch.zeros_like(t) for t in m], [torch.zeros_like(t) for t in v]
    optimiser = torch.optim.Adam(theirs, lr=0.01, betas=(0.9, 0.99), eps=1e-8)
    for step in (1, 2, 3):
        for p, g in zip(theirs, grads, strict=True):
            p.grad = g * step
        optimiser.step()
        adam_(params, [g * step for g in grads], m, v, 0.01, 0.9, 0.99, 1e-8, step)
    for ours, wanted in zip(params, theirs, strict=True):
        torch.testing.assert_close(ours, wanted.detach(), rtol=1e-5, atol=1e-6)


def test_what_does_not_fit(adam_):
    params, grads, m, v = state()
    with pytest.raises(RuntimeError, match="adam_: tensor 1 has other sizes in its list"):
        adam_(params, [grads[0], grads[2], grads[1]], m, v, 0.01, 0.9, 0.99, 1e-8, 1)
    with pytest.raises(RuntimeError, match=r"lab::adam_: lr = 1e\+300 does not fit the parameter `float lr`"):
        adam_(params, grads, m, v, 1e300, 0.9, 0.99, 1e-8, 1)
    with pytest.raises(RuntimeError, match="lab::adam_: params is written in place and not contiguous"):
        adam_(
            [torch.rand(4, 6).t()], [torch.rand(6, 4)], [torch.rand(6, 4)], [torch.rand(6, 4)], 0.01, 0.9, 0.99, 1e-8, 1
        )
    adam_([], [], [], [], 0.01, 0.9, 0.99, 1e-8, 1)


def test_without_those_instructions(adam_):
    former = adam_.runs("forward", "cpu").number
    plain = TEXT.replace("-march=native ", "")
    wb.cpp(adam_, plain)
    assert adam_.runs("forward", "cpu").number == former + 1
    with pytest.raises(TrialError, match="differs on 4 tensors float32"):
        wb.cpp(adam_, plain.replace("*p -= k.rate", "*p += k.rate"))
    adam_.restore(former)
