"""Lists of tensors and optional ones in Triton launches: devices, contiguous copies, strides of the results."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import gpu, schema
from workbench.build import triton_call
from workbench.tiers import triton_run
from workbench.trial.triton_library import laying_out

X = torch.linspace(-2, 3, 24).reshape(4, 6)


def _plan(text: str) -> triton_call.Plan:
    parsed = schema.parse(text)
    return triton_call.Plan(parsed, "forward", parsed.arguments, "launch", (), contiguous=True)


class _OnGpu:
    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)


class _Elsewhere(Tensor):
    """A tensor of this device that says it is on another: the device test is all that is asked of it."""

    @staticmethod
    def __new__(cls, like: Tensor) -> Tensor:
        return Tensor._make_subclass(cls, like)

    def get_device(self) -> int:
        return 1


def test_tensors_in_lists_count_too(namespace):
    plan = _plan(f"{namespace}::f(Tensor[] xs, Tensor?[] ws, Tensor(a!)[] ys) -> Tensor")
    given = {"xs": [X, X], "ws": [None, X], "ys": [X]}
    call = triton_run.on_one_device(plan, lambda values: [])
    with pytest.raises(RuntimeError, match=r"xs\[1\] is on meta, xs\[0\] on cpu: all tensors must be on one"):
        call({**given, "xs": [X, X.to("meta")]})
    with pytest.raises(RuntimeError, match=r"ws\[1\] is on meta, xs\[0\] on cpu: all tensors must be on one"):
        call({**given, "ws": [None, X.to("meta")]})
    assert triton_call.contiguous(given) and not triton_call.contiguous({**given, "ws": [None, X.t()]})
    settled = triton_call.settled(plan, {**given, "ws": [None, X.t()]})
    assert settled["ws"][0] is None and torch.equal(settled["ws"][1], X.t()) and triton_call.contiguous(settled)
    with pytest.raises(wb.SchemaError, match=r"f: ys\[1\] is not contiguous, and the cell reads no strides of it"):
        triton_call.settled(plan, {**given, "ys": [X, X.t()]})
    with pytest.raises(wb.SchemaError, match="launch returned out on meta; xs is on cpu"):
        triton_call.call(plan, lambda: X.to("meta"), given)


def test_a_launch_is_on_the_device_of_a_list(namespace, monkeypatch):
    plan = _plan(f"{namespace}::f(Tensor[] xs, Tensor? w=None) -> Tensor")
    entered = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda home: entered.append(home) or contextlib.nullcontext())
    monkeypatch.setattr(triton_call, "tensors", lambda v: [_OnGpu(1)] if isinstance(v, list) else ())
    triton_run.on_one_device(plan, lambda values: [])({"xs": [X], "w": None})
    assert entered == [torch.device("cuda", 1)]


def test_the_fast_call_looks_where_optional_tensors_are(namespace):
    plan = _plan(f"{namespace}::f(Tensor x, Tensor? w=None) -> Tensor")
    assert (
        "in __tried and x.get_device() == (__home := __current()) and (w is None or w.get_device() == __home):\n"
        in triton_run.fast_text(plan)
    )
    quick, slow = [], []
    call = triton_run.fast(plan, lambda: quick.append(1) or X, lambda values: [slow.append(1) or X],
                           {(torch.float32, None), (torch.float32, torch.float32)}, "cpu")  # fmt: skip
    call(X), call(X, X)
    assert (len(quick), len(slow)) == (2, 0)
    with contextlib.suppress(RuntimeError):
        call(X, _Elsewhere(X))
    assert (len(quick), len(slow)) == (2, 1)


PAIR = """\
@triton.jit
def kernel(x, y, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * k + tl.load(y + i, i < n), i < n)

def pair(xs, k=2.0):
    out = torch.empty(xs[0].shape, dtype=xs[0].dtype, device=xs[0].device)
    kernel[(triton.cdiv(out.numel(), 64),)](xs[0], xs[1], out, k, out.numel(), BLOCK=64)
    return out
"""


@pytest.mark.skipif(gpu.present(), reason="the interpreter is what runs where no GPU is")
def test_tensors_of_a_list_are_made_contiguous_and_the_reference_gives_the_strides(namespace):
    @wb.op(f"{namespace}::pair")
    def pair(xs: list[Tensor], k: float = 2.0) -> Tensor:
        return xs[0] * k + xs[1]

    pair.cases(lambda t: iter([([t(4, 6), t(4, 6)], 3.0)]))
    wb.triton(pair, PAIR)
    x, y = X, (X + 1).t().contiguous().t()
    assert torch.equal(pair([x, y], 4.0), x * 4 + y)
    found = pair([y, y], 4.0)
    assert torch.equal(found, y * 4 + y) and found.stride() == (1, 4)


def test_results_that_are_lists_keep_their_strides(namespace):
    plan = _plan(f"{namespace}::f(Tensor[] xs) -> (Tensor, Tensor[])")
    run = laying_out(plan, lambda values: [X, [X, X]], always=False)
    assert run({"xs": [X.t()]})[1] == [X, X]  # no layout op is asked: it makes single tensors alone
