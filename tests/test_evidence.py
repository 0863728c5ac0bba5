"""What is kept of the cases between two edits, and how much of it."""

from __future__ import annotations

import gc
import os
import weakref

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import define
from workbench.case import make
from workbench.judge import evidence, tryout

DOUBLE = "//! out = empty(x.shape)\n//! n = x.numel()\nvoid {name}(const float* x, float* out, int64_t n) {{ for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i]; }}"


def doubling(name: str, count: int) -> wb.Op:
    @wb.op(name)
    def double(x: Tensor) -> Tensor:
        return x * 2

    @double.cases
    def _(t):
        yield from (t(n) for n in range(1, count + 1))

    return double


def memory_files() -> int:
    named = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return sum("memfd:workbench" in os.readlink(path) for path in named if os.path.islink(path))


def test_ops_with_many_cases_hold_few_memory_files(namespace, monkeypatch):
    monkeypatch.setattr(evidence, "MOST", 5)
    first, second = (doubling(f"{namespace}::{name}", 8) for name in ("first", "second"))
    for op in (first, second, first):  # what was let go is made again
        wb.cpp(op, DOUBLE.format(name=op.name))
        assert op.runs("forward", "cpu").number and torch.equal(op(torch.ones(3)), torch.full((3,), 2.0))
    assert len(first.evidence) + len(second.evidence) == 5
    assert len(first.evidence) == 5  # used last


def test_an_op_that_is_forgotten_lets_its_memory_files_go(namespace):
    before = memory_files()
    op = doubling(f"{namespace}::twofold", 6)
    wb.cpp(op, DOUBLE.format(name="twofold"))
    assert memory_files() >= before + 6
    define.forget(op)
    assert memory_files() <= before


def test_cases_that_are_no_more_are_let_go(namespace):
    """A case holds its tensors: those of each run of a cell, and of each input of a check, would add up."""
    op = doubling(f"{namespace}::doubled", 3)
    wb.cpp(op, DOUBLE.format(name="doubled"))
    held = [weakref.ref(t) for c in op.case_list() for t in c.args]
    assert len(held) == 3 and all(t() is not None for t in held)

    @op.cases
    def _(t):
        yield t(5)

    (tries,) = tryout.tries_of(op)
    assert [f.status for f in tries.submit(make(lambda t: (t(n) for n in (6, 7)), op.schema)).result()] == ["agree"] * 2
    tries.close()
    gc.collect()
    assert [t() for t in held] == [None] * 3
    assert all(key in op.evidence for mine, key in evidence._kept if mine == id(op))


@pytest.mark.parametrize("tier", ["raw", "host"])
def test_only_a_reference_that_lays_contiguous_inputs_out_anew_is_asked_at_each_call(namespace, tier):
    """Asking takes several times as long as a small kernel; with strided inputs it is done without being told."""

    def doubled(name, reference):
        op = wb.op(f"{namespace}::{name}")(reference)

        @op.cases
        def _(t):
            yield t(4, 6)
            yield t(6, 4).t()

        host = (
            "Tensor {name}(const Tensor& x) {{ Tensor y = torch::stable::contiguous(x); "
            "Tensor out = torch::stable::empty_like(y); for (int64_t i = 0; i < x.numel(); ++i) "
            "((float*)out.data_ptr())[i] = 2 * ((const float*)y.data_ptr())[i]; return out; }}"
        )
        wb.cpp(op, (DOUBLE if tier == "raw" else host).format(name=name))
        for x in (torch.randn(3, 5), torch.randn(5, 3).t()):
            assert op(x).equal(2 * x) and op(x).stride() == op.reference(x).stride()
        return op.runs("forward", "cpu").kernel.layout

    def plain(x: Tensor) -> Tensor:
        return x * 2

    def turned(x: Tensor) -> Tensor:
        return (x * 2).t().contiguous().t()

    assert (doubled("plain", plain), doubled("turned", turned)) == (False, True)
