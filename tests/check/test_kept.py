"""Graphs are kept from one quick check to the next: not traced again for another kernel, and never stale."""

from __future__ import annotations

import torch
from torch import Tensor

import workbench as wb


def doubling(namespace):
    @wb.op(f"{namespace}::double")
    def double(x: Tensor) -> Tensor:
        return x * 2

    double.cases(lambda t: [t(3, 4)])
    double.kernel("cpu")(lambda x: x * 2)
    return double


def status(report):
    return {r.check: r.status for r in report.rows if r.check in ("compile", "compiled = eager")}


GOOD = {"compile": "pass", "compiled = eager": "pass"}


def test_another_kernel_is_run_in_the_same_graphs(namespace):
    op, symbolic = doubling(namespace), []

    @op.fake
    def _(x):
        symbolic.extend(n for n in x.shape if not isinstance(n, int))
        return torch.empty_like(x)

    assert status(op.check()) == GOOD
    traced = len(symbolic)
    assert traced
    ran = []

    @op.kernel("cpu")
    def _(x):
        ran.append(x.shape)
        return x + x

    seen = len(ran)
    assert status(op.check()) == GOOD
    assert len(symbolic) == traced and len(ran) > seen, "not traced again, and the new kernel ran"


def test_a_kernel_that_keeps_state_is_found_in_a_graph_of_before(namespace):
    op, calls = doubling(namespace), []
    assert status(op.check()) == GOOD

    def kernel(x):
        calls.append(1)
        return x * 2 + (len(calls) > 12) * len(calls)

    op.kernel("cpu")(kernel)
    assert len(calls) <= 12
    calls.extend([1] * 12)
    assert "fail" in status(op.check()).values()


def test_another_fake_is_traced(namespace):
    op = doubling(namespace)
    assert status(op.check()) == GOOD
    op.fake(lambda x: x.new_empty([int.from_bytes(n.to_bytes(8, "big"), "big") for n in x.shape]))
    assert status(op.check())["compile"] == "fail"
    op.fake(torch.empty_like)
    assert status(op.check()) == GOOD


def test_another_shape_and_another_op_of_the_name_are_traced(namespace):
    op = doubling(namespace)
    assert status(op.check()) == GOOD
    op.cases(lambda t: [t(5, 6)])
    assert status(op.check()) == GOOD

    @wb.op(f"{namespace}::double")
    def double(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    double.cases(lambda t: [t(5, 6)])
    assert status(double.check()) == GOOD
