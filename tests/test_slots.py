"""What runs in a slot: saved fakes, layouts, Python kernels beside raw ones, and many edits in one process."""

from __future__ import annotations

import statistics
import time

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.live import NORM, SCALE, close
from workbench import trial
from workbench.build import native
from workbench.errors import ToolchainError

X = torch.linspace(-2, 3, 24).reshape(4, 6)


def test_an_empty_slot_is_the_reference():
    scale = live.scale()
    assert not scale.slots and scale.runs("forward").number == 0 and scale.still("forward", "cpu") == "the reference"
    wb.cpp(scale, SCALE)
    assert scale.still("forward", "cpu") == "v1" and scale.still("backward", "cpu") == "the reference"
    with pytest.raises(TypeError):
        scale.slots["forward", "cpu"] = None  # to be read only


def test_a_python_kernel_and_a_cell_take_turns():
    scale = live.scale()

    @scale.kernel("cpu")
    def doubled(x, k=2.0):
        return x * k + 1e-6

    zero = torch.zeros(2)
    assert scale(zero).tolist() == pytest.approx([1e-6] * 2) and scale.runs().how == "Python"
    wb.cpp(scale, SCALE)
    assert scale(zero).tolist() == [0.0, 0.0]
    scale.restore(1)
    assert scale(zero).tolist() == pytest.approx([1e-6] * 2)
    with pytest.raises(wb.TrialError, match="differs"):
        scale.kernel("cpu")(lambda x, k=2.0: x)
    assert scale.runs().number == 1


@pytest.mark.parametrize("text", [
    SCALE.replace("x[i] * k", "k * x[i]"),  # under the same launcher
    SCALE.replace("//! n = x.numel()", "//! n = x.numel()\n//! require n >= 0"),  # under another one
])  # fmt: skip
def test_a_version_that_cannot_be_installed_leaves_the_former_one_running(text, monkeypatch):
    scale = live.scale()
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1e-6"))
    zero, fails = torch.zeros(2), []

    def full(*_, **__):
        fails.append(True)
        raise ToolchainError("no memory is left for its code")

    with monkeypatch.context() as patched:
        described = native.descriptor
        patched.setattr(native, "descriptor", lambda *a, **k: full() if not fails else described(*a, **k))
        with pytest.raises(ToolchainError, match=r"no memory is left for its code\nscale forward still runs v1"):
            wb.cpp(scale, text)
    assert fails and scale.runs().number == 1 and scale(zero).tolist() == pytest.approx([1e-6] * 2)
    assert scale.versions[2].refused == "cannot be installed: no memory is left for its code"
    compiled = torch.compile(lambda x: scale(x), backend="aot_eager", fullgraph=True)
    assert compiled(zero).tolist() == pytest.approx([1e-6] * 2)
    wb.cpp(scale, text)
    assert scale.runs().number == 3 and scale(zero).tolist() == [0.0, 0.0]


def test_a_python_kernel_that_cannot_be_installed_leaves_the_cell_running(monkeypatch):
    scale = live.scale()
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1e-6"))
    monkeypatch.setattr(type(scale.registration), "set_kernel", lambda *a: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError, match="no"):
        scale.kernel("cpu")(lambda x, k=2.0: x * k)
    monkeypatch.undo()
    assert scale.runs().number == 1 and scale(torch.zeros(2)).tolist() == pytest.approx([1e-6] * 2)


def test_a_python_kernel_is_judged_again_too(capsys):
    scale = live.scale()
    scale.kernel("cpu")(lambda x, k=2.0: x * k)

    @wb.op("live::scale")
    def again(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k + 1

    assert not scale.slots and "v1 (forward cpu) was taken out: it differs" in capsys.readouterr().out
    assert torch.equal(scale(X), X * 2 + 1)


def test_compiled_callers_see_what_a_forward_saves():
    norm = live.norm()
    x, w = torch.randn(3, 8), torch.randn(8)
    compiled = torch.compile(lambda x, w: norm(x, w), fullgraph=True, backend="aot_eager")
    wanted = live.gradients(norm.reference, x, w)
    for _ in range(2):  # the reference, which saves nothing; the cell; the reference; the cell
        assert all(close(g, e) for g, e in zip(live.gradients(compiled, x, w), wanted, strict=True))
        wb.cpp(norm, NORM)
        assert all(close(g, e) for g, e in zip(live.gradients(compiled, x, w), wanted, strict=True))
        assert norm.forward_op(x, w, 1e-6)[1].shape == (3,)
        norm.restore(0)
        assert norm.forward_op(x, w, 1e-6)[1].numel() == 0


def test_outputs_have_the_references_strides():
    live.gone("live::turned")

    @wb.op("live::turned")
    def turned(x: Tensor) -> Tensor:
        return (x.t() * 2.0).t().contiguous().t()  # of a contiguous input it makes an output that is not

    @turned.cases
    def _(t):
        yield (t(3, 4),)

    wb.cpp(turned, "//! r, c = x.shape\n//! out = empty(c, r)\nvoid turned(const float* x, float* out, int64_t r, int64_t c) {\n"
                   "  for (int64_t i = 0; i < r; ++i) for (int64_t j = 0; j < c; ++j) out[j * r + i] = 2 * x[i * c + j];\n}")  # fmt: skip
    for x in (X, X.t(), X[:, ::2]):
        got, wanted = turned(x), turned.reference(x)
        assert torch.equal(got, wanted) and got.stride() == wanted.stride()
        compiled = torch.compile(lambda x: turned(x) + 0, fullgraph=True, backend="aot_eager", dynamic=False)
        assert torch.equal(compiled(x), wanted)


def test_a_bench_case_that_the_kernel_cannot_take_costs_no_version():
    scale = live.scale(cases=False)

    @scale.cases
    def _(t):
        yield t(4, 8), 3.0
        yield wb.case("large", t(64, 64), bench=True)

    wb.cpp(scale, SCALE.replace("//! n =", "//! require x.numel() < 100\n//! n ="))
    assert scale.runs().number == 1 and scale.last_line.rough_us == 0.0


def memory_mb() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


@pytest.mark.slow
def test_three_hundred_edits_cost_no_more_at_the_end():
    scale = live.scale()
    trial.worker().warm()
    took, before = [], 0.0
    for i in range(330):
        began = time.perf_counter()
        wb.cpp(scale, SCALE.replace("x[i] * k", f"x[i] * k + {i} * 1e-12"))
        took.append(time.perf_counter() - began)
        if i == 29:  # warmed up
            before = memory_mb()
    grown = memory_mb() - before
    first, last = statistics.median(took[30:50]), statistics.median(took[-20:])
    assert scale(torch.zeros(1)).item() == pytest.approx(329e-12, rel=1e-3, abs=0)
    assert grown <= 60, f"{grown:.0f} MB more after 300 edits"
    assert last <= 1.2 * first, f"{first * 1e3:.0f} ms at first, {last * 1e3:.0f} ms at the end"


def test_a_rerun_of_the_ops_cell_judges_by_the_comparison_that_follows_it(namespace):
    def cell():
        @wb.op(f"{namespace}::signs")
        def signs(x: Tensor) -> Tensor:
            return x * 2

        @signs.compare  # any sign is right
        def _(x, out):
            return out.abs()

        @signs.cases
        def _(t):
            yield t(4, 8)

        return signs

    op = cell()
    wb.cpp(op, "//! n = x.numel()\n//! out = empty_like(x)\nvoid signs(const float* x, float* out, int64_t n)"
               " { for (int64_t i = 0; i < n; ++i) out[i] = -2 * x[i]; }")  # fmt: skip
    again = cell()
    assert again is op
    assert again.runs().number == 1
    x = torch.randn(3)
    assert again(x).equal(-2 * x)


def test_an_edit_of_the_body_alone_makes_no_compiled_caller_trace_again(namespace):
    @wb.op(f"{namespace}::followed", returns="y", saves="rstd")
    def followed(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @followed.cases
    def _(t):
        yield t(4, 8), t(8)

    wb.cpp(followed, NORM, entry="norm")
    traced = []

    def backend(graph, inputs):
        traced.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x, w: followed(x, w) * 2, fullgraph=True, backend=backend)
    x, w = torch.randn(3, 8), torch.randn(8)
    close(compiled(x, w), followed.reference(x, w) * 2)
    wb.cpp(followed, NORM + "// another text, the same declaration\n", entry="norm")
    assert followed.runs().number == 2
    close(compiled(x, w), followed.reference(x, w) * 2)
    assert len(traced) == 1
    followed.restore(0)  # now nothing is saved, which is another graph with gradients
    close(compiled(x, w), followed.reference(x, w) * 2)
    assert len(traced) == 2
