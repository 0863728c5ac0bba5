"""A full check of a Triton cell where no GPU is: in the interpreter, once, and not said to be more than it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import gone
from workbench import gpu
from workbench.check import full, quick
from workbench.check.full import sweep
from workbench.judge import tryout

pytestmark = pytest.mark.skipif(gpu.present(), reason="what is done where no GPU is")

SUMS = """\
@triton.jit
def kernel(x, out, cols, BLOCK: tl.constexpr):
    row, carry = tl.program_id(0), tl.zeros((), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=0).to(tl.float32)
        tl.store(out + row * cols + c, carry + tl.cumsum(v, 0), mask=c < cols)
        carry += tl.sum(v, 0)

def sums(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        cols = x.size(-1) if x.dim() else 1
        kernel[(out.numel() // cols,)](x, out, cols, BLOCK=64)
    return out
"""
CARRY = "        carry += tl.sum(v, 0)\n"


@pytest.fixture
def sums():
    gone("full::sums")

    @wb.op("full::sums")
    def sums(x: Tensor) -> Tensor:
        return x.cumsum(-1)

    sums.cases(lambda t: [t(3, 10)])
    return sums


def check(op, *only):
    tries = tryout.tries_of(op)
    return full.check(op, lambda: tries, lambda: quick.check(op, "full"), device="cpu", only=only)


def test_it_is_interpreted_once_and_a_dtype_that_a_call_refuses_is_no_failure(sums):
    wb.triton(sums, SUMS)
    report = check(sums, "sizes", "dtypes", "determinism")
    assert report.ok, str(report)
    told = {(r.check, r.case): r for r in report.rows}
    assert (
        told["sweeps", "forward cuda"].detail == "not run: no GPU here; the interpreter runs the same cell on the CPU"
    )
    assert not [r for r in report.rows if r.case.endswith("(cuda)")], "the same cell is not tried twice"
    assert "so no race can show" in told["determinism", "3x10 float32"].detail
    assert told["sizes", "past 2**31 elements or bytes"].status == "skip"
    wide = told["dtypes", "float64"]  # it adds up in float32
    assert wide.status == "skip" and "a first call with these dtypes is tried and then refused" in wide.detail
    with pytest.raises(RuntimeError, match="was tried for x float64 and differs"):
        sums(torch.randn(2, 3, dtype=torch.float64))


def test_a_carry_that_is_lost_is_found_with_its_line(sums):
    wb.triton(sums, SUMS.replace(CARRY, ""))
    failed, long = [r for r in check(sums, "sizes").rows if r.status == "fail"][::-1]
    assert long.case == "long" and "smallest found: x float32[1, 65]" in long.detail
    assert failed.case == "around numbers in the code" and "smallest found: x float32[1, 65]" in failed.detail
    assert "64 stands on line 14" in failed.detail


def test_sizes_for_an_interpreter_are_small(sums):
    families = full.run.sizes_of(sums.case_list(), sums.schema)
    bounds = [full.run.bounds(None, None)[0].__class__(4096, "block", is_block=True)]
    sizes = [
        sweep.elements(v, sums.schema)
        for v in sweep.plan(sums.schema, families, bounds, 1000)
        if v.about == "around blocks"
    ]
    assert not sizes
    assert [v for v in sweep.plan(sums.schema, families, bounds) if v.about == "around blocks"]


BLEND = """\
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n, other=0) + tl.load(y + i, mask=i < n, other=0), mask=i < n)

def blend_(x, y):
    y = y.contiguous()
    assert x.is_contiguous(), "x is written in place and not contiguous"
    kernel[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(max(1, x.numel())))
"""


def test_what_is_changed_in_place_has_no_layout_to_be_given(namespace):
    @wb.op(f"{namespace}::blend_", mutates="x")
    def blend_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    blend_.cases(lambda t: [(t(3, 5), t(3, 5))])
    wb.triton(blend_, BLEND)
    report = check(blend_, "layouts")
    assert report.ok, str(report)
    assert "2 that the kernel refuses" in next(r for r in report.rows if r.case == "transposed").detail
    x = torch.zeros(3, 5)
    blend_(x, torch.ones(5, 3).t())
    assert torch.equal(x, torch.ones(3, 5))


SCALES = """\
@triton.jit
def kernel(x, out, kept, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0)
    tl.store(kept + row, tl.sum(v, 0))
    tl.store(out + row * cols + c, v * 2, mask=c < cols)

def scales(x):
    x = x.contiguous()
    out, kept = torch.empty_like(x), x.new_empty(x.shape[:-1])
    if out.numel():
        kernel[(kept.numel(),)](x, out, kept, x.size(-1), BLOCK=triton.next_power_of_2(x.size(-1)))
    return out, kept
"""


def test_what_is_only_saved_may_stay_unwritten_where_there_is_nothing_to_do(namespace):
    @wb.op(f"{namespace}::scales", saves="kept")
    def scales(x: Tensor) -> Tensor:
        return x * 2

    scales.cases(lambda t: [t(3, 5)])
    wb.triton(scales, SCALES)
    report = check(scales, "sizes")
    assert next(r for r in report.rows if r.case == "empty").status == "pass", str(report)
