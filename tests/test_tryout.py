"""What a full check makes of several runs on one input: those that did the same to the last bit are judged once."""

from __future__ import annotations

import pytest
import torch

from workbench.judge.tryout import _alike
from workbench.trial.protocol import Result

X = torch.tensor([0.0, float("nan"), 1.0])


def ran(*outputs, **changes) -> Result:
    return Result(0, "odd", **{"status": "ok", "outputs": outputs, **changes})


@pytest.mark.parametrize(
    "x", [X, X.to(torch.bfloat16), X.to(torch.complex64), X[1], X[:0], X > 0, torch.ones(2, 3).t()], ids=str
)
def test_the_same_bits_are_the_same(x):
    assert _alike(ran(x, 2.0), ran(x.clone(), 2.0))


@pytest.mark.parametrize("other", [
    ran(torch.tensor([-0.0, float("nan"), 1.0])),
    ran(X.to(torch.float64)),
    ran(X[:2]),
    ran(X, X),
    ran(X, status="overrun"),
    ran(X, unwritten=(1,)),
    ran(X, aliases=("x",)),
    ran(X, mutated={"y": X}),
])  # fmt: skip
def test_all_else_is_judged_by_itself(other):
    assert not _alike(other, ran(X))
