"""Triton cells in live ops, on a machine without a GPU: tried by the interpreter, compiled for sm_90, kept in two slots."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import gradients
from workbench import cells, gpu, schema
from workbench.build import triton_call
from workbench.tiers import TritonKernel, triton_run

pytestmark = pytest.mark.skipif(gpu.present(), reason="what is done where no GPU is")

SCALE = """\
# Blocks of 64
@triton.jit
def kernel(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * k, i < n)

def scale(x, k=2.0):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, k, x.numel(), BLOCK=64)
    return out
"""
BACKWARD = """\
def backward(grad_out, k):
    out = torch.empty_like(grad_out)
    kernel[(triton.cdiv(out.numel(), 64),)](grad_out, out, k, out.numel(), BLOCK=64)
    return out
"""
NORM = """\
@triton.jit
def kernel(x, w, y, rstd, eps, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + c, c < n, 0.0)
    r = tl.rsqrt(tl.sum(v * v) / n + eps)
    tl.store(rstd + row, r)
    tl.store(y + row * n + c, v * r * tl.load(w + c, c < n), c < n)

def norm(x, w, eps=1e-6):
    n = x.size(-1)
    y, rstd = torch.empty_like(x), torch.empty(x.numel() // n, device=x.device)
    kernel[(x.numel() // n,)](x, w, y, rstd, eps, n, B=triton.next_power_of_2(n))
    return y, rstd
"""
NORM_BACKWARD = """\
@triton.jit
def kernel(g, x, w, rstd, dx, dw, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    gs, v = tl.load(g + row * n + c, c < n, 0.0), tl.load(x + row * n + c, c < n, 0.0)
    r = tl.load(rstd + row)
    gw = gs * tl.load(w + c, c < n, 0.0)
    tl.store(dx + row * n + c, gw * r - v * (tl.sum(gw * v) * r * r * r / n), c < n)
    tl.atomic_add(dw + c, gs * v * r, c < n)

def backward(grad_y, x, w, rstd):
    n = x.size(-1)
    dx, dw = torch.empty_like(x), torch.zeros_like(w)
    kernel[(x.numel() // n,)](grad_y, x, w, rstd, dx, dw, n, B=triton.next_power_of_2(n))
    return dx, dw
"""
TWICE = """\
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    p = tl.make_block_ptr(x, (n,), (1,), (0,), (B,), (0,))
    q = tl.make_block_ptr(out, (n,), (1,), (0,), (B,), (0,))
    tl.store(q, tl.load(p) * 2)

def twice(x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel(), B=64)
    return out
"""
X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(4, 8), 3.0
        yield wb.case("odd", t(5, 13))

    return scale


@pytest.fixture
def norm(namespace):
    @wb.op(f"{namespace}::norm", returns="y", saves="rstd")
    def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @norm.cases
    def _(t):
        yield t(3, 5), t(5)

    return norm


@pytest.fixture
def lines():
    told = []
    cells.listeners.append(told.append)
    yield told
    cells.listeners.remove(told.append)


# ---------------------------------------------------------------- forward


def test_a_cell_is_tried_by_the_interpreter_compiled_and_kept_in_both_slots(scale, lines):
    assert wb.triton(scale, SCALE) is scale
    version = scale.versions[1]
    assert [(o.case, o.status) for o in version.trial.outcomes] == [("4x8", "agree"), ("odd", "agree")]
    assert (version.title, version.how, version.device) == ("Blocks of 64", "Triton", "cuda")
    assert {k: (v.number, v.device, v.how) for k, v in scale.slots.items()} == {
        ("forward", "cuda"): (1, "cuda", "Triton"), ("forward", "cpu"): (1, "cpu", "interpreted Triton")}  # fmt: skip
    [line] = lines
    assert (
        line.installed
        and line.resources.startswith("interpreted | compiled for sm_90: ")
        and "regs, no spills" in line.resources
    )
    assert " triton triton" not in str(line) and "2 cases agree" in str(line)
    found = {c.name: c for c in version.kernel.compiled()}
    assert list(found) == ["kernel"] and "BLOCK=64" in found["kernel"].signature and found["kernel"].asm["cubin"]


def test_a_tutorials_cell_is_compiled_and_tried_with_no_gpu(scale, lines):
    """What Triton's own tutorials ask of a GPU is answered for the architecture that is compiled for."""
    device = "DEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
    with_device = "    assert x.device == DEVICE\n    torch.cuda.set_device(DEVICE)\n    out ="
    wb.triton(scale, device + SCALE.replace("    out =", with_device))
    assert "2 cases agree" in str(lines[-1]) and "interpreted | compiled for sm_90: " in str(lines[-1])
    assert torch.equal(scale(X, 3.0), X * 3)
    assert torch.equal(torch.compile(lambda x: scale(x, 3.0), fullgraph=True, backend="aot_eager")(X), X * 3)


WARMED = """\
def scale(x, k=2.0):
    out, n = torch.empty_like(x), x.numel()
    made = kernel.warmup(x, out, k, n, BLOCK=64, num_warps=2, grid=(1,))
    made._init_handles()
    resident = 65536 // (made.n_regs * 32 * made.metadata.num_warps)
    assert resident and 200000 // made.metadata.shared
    made[(triton.cdiv(n, 64), 1, 1)](x, out, k, n, 64)
    return out
"""


def test_a_kernel_that_is_warmed_up_and_asked_for_its_registers_first(scale, lines):
    """As in Triton's tutorial on softmax."""
    wb.triton(scale, SCALE[: SCALE.index("def scale")] + WARMED)
    assert "2 cases agree" in str(lines[-1]) and "interpreted | compiled for sm_90: " in str(lines[-1])
    assert torch.equal(scale(X, 3.0), X * 3)
    (made,) = scale.versions[1].kernel.compiled()
    assert "BLOCK=64, num_warps=2" in made.signature
    from triton.runtime.interpreter import InterpretedFunction

    assert InterpretedFunction.run.__module__ == "triton.runtime.interpreter"  # Triton is as before


def test_a_launcher_that_looks_at_its_data_says_why_it_was_not_compiled(scale, lines):
    wb.triton(scale, SCALE.replace("    return out", "    assert out.sum().item() is not None\n    return out"))
    [note] = lines[-1].notes
    assert note.startswith("not compiled: its launches are not known before it runs (") and "line 10: Data" in note
    assert note.endswith(": it asks a tensor for its value)")
    with pytest.raises(wb.SchemaError, match="line 10: Data"):
        scale.inspect()


def test_what_triton_warns_of_is_a_note_and_no_print_of_the_cells(tmp_path):
    """In a process of its own: pytest keeps warnings from being printed."""
    code = f"""if True:
        import torch, workbench as wb
        @wb.op("warned::twice")
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        twice.cases(lambda t: [t(64)])
        for factor in ("2", "2.0", "1 * 2"):
            wb.triton(twice, {TWICE!r}.replace("* 2", "* " + factor))
        assert all(v.trial.ok and not v.prints for v in twice.versions[1:]), [v.trial for v in twice.versions[1:]]
        (note,) = twice.last_line.notes
        assert note.endswith("line 3: warning: tl.make_block_ptr is deprecated. Use TensorDescriptor or "
                             "tl.make_tensor_descriptor instead."), note
    """
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}  # what Triton has in its cache it does not warn of again
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=120, env=env, capture_output=True, text=True
    )
    assert "UserWarning" not in done.stderr


def test_and_between_masks_is_told_on_its_line(scale, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    wb.triton(scale, SCALE.replace("tl.load(x + i, i < n)", "tl.load(x + i, (i < 64) and (i < n))"))
    (note,) = scale.last_line.notes
    assert "line 5: warning: Logical operators 'and' and 'or'" in note
    assert note.endswith("please use '&' or '|' instead: the interpreter takes one of the two alone")


def test_the_cpu_runs_the_interpreter_and_not_the_reference(scale):
    wb.triton(scale, SCALE.replace("* k,", "* k + 1e-30,"))
    assert scale(torch.zeros(2)).tolist() == [pytest.approx(1e-30, rel=1e-3, abs=0)] * 2
    assert torch.equal(scale(X.t(), 3.0), X.t() * 3) and scale(X.t(), 3.0).stride() == (1, 6)
    assert torch.allclose(scale(X.bfloat16(), 3.0), X.bfloat16() * 3)
    compiled = torch.compile(lambda x: scale(x, 3.0) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X), X * 3 + 1)
    scale.restore(0)
    assert scale(torch.zeros(2)).tolist() == [0.0, 0.0] and not scale.slots


def test_every_caller_follows_another_cell_and_a_former_version_comes_back(scale):
    compiled = torch.compile(lambda x: scale(x, 3.0), fullgraph=True, backend="aot_eager")
    held, copied = scale.torch_op, copy.deepcopy(scale)
    for added in (2e-6, 1e-6):
        wb.triton(scale, SCALE.replace("* k,", f"* k + {added},"))
        for call in (partial(scale, k=3.0), partial(held, k=3.0), partial(copied, k=3.0), compiled):
            assert call(torch.zeros(2)).tolist() == pytest.approx([added] * 2)
    scale.restore(1)
    assert scale(torch.zeros(1)).item() == pytest.approx(2e-6) and scale.runs("forward", "cuda").number == 1


def test_compiled_code_of_the_cpu_is_not_displaced(scale):
    wb.cpp(scale, "//! n = x.numel()\n//! out = empty_like(x)\nvoid scale(const float* x, float* out, double k, int64_t n)"
                  "{ for (int64_t i = 0; i < n; ++i) out[i] = x[i] * k; }")  # fmt: skip
    wb.triton(scale, SCALE)
    assert scale.runs("forward", "cpu").language == "cpp" and scale.runs("forward", "cuda").number == 2


def test_saved_tensors_reach_a_backward_in_a_cell_of_its_own(norm):
    wb.triton(norm, NORM)
    line = wb.triton(f"{norm.qualname}.backward", NORM_BACKWARD).last_line
    assert line.slot == "backward" and [o.status for o in line.trial.outcomes] == ["agree"]
    assert set(norm.slots) == {(s, d) for s in ("forward", "backward") for d in ("cpu", "cuda")}
    x, w = torch.randn(3, 5), torch.randn(5)
    for got, wanted in zip(gradients(norm, x, w), gradients(norm.reference, x, w), strict=True):
        assert torch.allclose(got, wanted, atol=1e-5)
    compiled = torch.compile(lambda x, w: norm(x, w), fullgraph=True, backend="aot_eager", dynamic=True)
    for got, wanted in zip(gradients(compiled, x, w), gradients(norm.reference, x, w), strict=True):
        assert torch.allclose(got, wanted, atol=1e-5)
    [backward] = norm.runs("backward", "cuda").kernel.compiled()
    assert "rstd: *fp32" in backward.signature


def test_one_cell_fills_forward_and_backward(scale, lines):
    wb.triton(scale, SCALE + BACKWARD)
    assert [line.slot for line in lines] == ["forward", "backward"]
    [got] = gradients(lambda x: scale(x, 3.0), X)
    assert torch.allclose(got, X * 18)


def test_a_backward_that_returns_nothing_is_told_as_such(scale):
    wb.triton(scale, SCALE)
    kept = SCALE[: SCALE.index("def scale")] + BACKWARD.replace("    return out\n", "")
    with pytest.raises(wb.TrialError, match="not installed"):
        wb.triton(f"{scale.qualname}.backward", kept)
    assert {o.detail.partition(": ")[2] for o in scale.versions[2].trial.outcomes} == {
        "backward returned nothing; the floating-point tensor arguments are x"}  # fmt: skip


def test_a_backward_under_another_name_is_told_what_it_takes(scale):
    with pytest.raises(wb.SchemaError) as raised:
        wb.triton(f"{scale.qualname}.backward", SCALE[: SCALE.index("def scale")] + BACKWARD.replace("backward", "bwd"))
    assert "it takes arguments, saved tensors and gradients by name" in str(raised.value)
    assert "functions here that launch: bwd; rename it, or give its name with --entry" in str(raised.value)


def test_a_gradient_that_is_left_out_comes_from_the_reference(norm):
    text = NORM_BACKWARD.replace("return dx, dw", "return dx, None")
    wb.triton(norm, NORM)
    wb.triton(f"{norm.qualname}.backward", text)
    assert norm.runs("backward", "cuda").kernel.left_out == ("w",)
    x, w = torch.randn(3, 5), torch.randn(5)
    for got, wanted in zip(gradients(norm, x, w), gradients(norm.reference, x, w), strict=True):
        assert torch.allclose(got, wanted, atol=1e-5)


def test_autotuned_kernels_run_every_configuration_in_the_trial(scale):
    tuned = SCALE.replace(
        "@triton.jit", '@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 32)], key=["n"])\n@triton.jit'
    )
    tuned = tuned.replace(", BLOCK=64)", ")").replace(
        "[(triton.cdiv(x.numel(), 64),)]", "[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)]"
    )
    wb.triton(scale, tuned)
    assert torch.equal(scale(X, 3.0), X * 3)
    assert [o.case for o in scale.runs("forward", "cpu").trial.outcomes] == ["4x8", "odd"]
    broken = tuned.replace("* k,", "* tl.where(BLOCK == 32, 0.0, k),")
    with pytest.raises(
        wb.TrialError, match=r"differs on 4x8 float32 \(kernel with BLOCK=32, num_warps=4.*\): 32 of 32"
    ):
        wb.triton(scale, broken)


def test_an_op_born_of_a_triton_cell(namespace):
    born = wb.triton(f"{namespace}::scale", SCALE)
    assert str(born.schema) == f"{namespace}::scale(Tensor x, float k=2.0) -> Tensor"
    assert torch.equal(born(X, 3.0), X * 3) and len(born.versions[1].trial.outcomes) == 1
    assert torch.compile(lambda x: born(x, 3.0), fullgraph=True, backend="aot_eager")(X).equal(X * 3)
    with pytest.raises(wb.SchemaError, match="k=None does not say its type"):
        wb.triton(f"{namespace}::other", SCALE.replace("def scale(x, k=2.0)", "def other(x, k=None)"))


def test_interpret_runs_in_this_process(scale):
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        wb.triton(scale, SCALE.replace("    tl.store", '    print("at", k)\n    tl.store'), interpret=True)
    assert "at 3.0" in heard.getvalue() and list(scale.slots) == [("forward", "cpu")]
    with pytest.raises(wb.TrialError, match=r"raises on 4x8 float32: cell, line 5: ValueError: here"):
        wb.triton(scale, SCALE.replace("    tl.store", '    raise ValueError("here")\n    tl.store'), interpret=True)
    assert torch.equal(scale(X, 3.0), X * 3)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(("old", "new", "kind", "words"), [
    ("* k,", "* k + 1,", "mismatch", "32 of 32 elements differ"),
    ("i < n)\n\n", "i < n + 1)\n\n", "overrun", "writes past the end of out"),
    ("tl.load(x + i,", "tl.load(x + i + 100000000000,", "crash", "SIGSEGV"),
    ("tl.store(out + i,", "tl.store(x + i,", "mutation", "argument x"),
    ("    out =", "    raise ValueError('no')\n    out =", "mismatch", "cell, line 8: ValueError: no"),
    ("return out", "return out, x", "mismatch", "scale returned 2 results; scale gives out, a Tensor"),
])  # fmt: skip
def test_what_is_wrong_is_refused_and_nothing_is_lost(scale, old, new, kind, words):
    wb.triton(scale, SCALE)
    with pytest.raises(wb.TrialError, match=words) as raised:
        wb.triton(scale, SCALE.replace(old, new))
    assert raised.value.kind == kind and "still runs v1" in str(raised.value)
    assert torch.equal(scale(X, 3.0), X * 3)
    if new == "* k + 1,":
        assert torch.allclose(scale.versions[2](X, 3.0), X * 3 + 1) and torch.equal(scale.versions[1](X, 3.0), X * 3)


@pytest.mark.parametrize(("old", "new", "line", "words"), [
    ("BLOCK=64", "BLOCK=MISSING", 9, "MISSING is not defined in this cell"),
    ("* k,", "* MISSING,", 5, r"MISSING is not defined.*'MISSING = tl.constexpr\(0.5\)'"),
    ("def scale(x, k=2.0)", "def scale(x, kk, k=2.0)", 7, "the parameter 'kk' binds to no argument; did you mean 'k'?"),
    ("def scale(", "def scales(", 1, "no function is called 'scale'"),
    ("# Blocks of 64", "N = 3\nM = N", 0, ""),
    ("* k,", "* tl.arange(0, 48),", 5, "power of 2"),
    ("* k,", "* k +,", 5, "invalid syntax"),
])  # fmt: skip
def test_text_that_is_no_kernel(scale, old, new, line, words):
    MISSING = 0.5  # what the notebook has: offered where a kernel lacks it
    text = SCALE.replace(old, new)
    if not line:
        wb.triton(scale, text)
        return
    with pytest.raises(wb.WorkbenchError, match=words) as raised:
        wb.triton(scale, text)
    assert raised.value.line == line and "still runs the reference" in str(raised.value) and not scale.slots
    del MISSING


def test_a_cell_without_a_target(scale):
    with pytest.raises(wb.SchemaError, match="a Triton cell fills a slot of an op: name it"):
        wb.triton(None, SCALE)


def test_a_python_kernel_for_a_gpu_that_is_not_here_is_kept(scale):
    @scale.kernel("cuda")
    def _(x, k=2.0):
        raise AssertionError("never")

    version = scale.runs("forward", "cuda")
    assert version.number == 1 and {o.detail for o in version.trial.outcomes} == {"not run: no GPU here"}
    assert torch.equal(scale(X, 3.0), X * 3)
    (row,) = [r for r in scale.check().rows if r.case == "forward cuda v1"]
    assert (row.status, row.detail) == ("skip", "not run: no GPU here")
    with pytest.raises(wb.SchemaError, match="'gpu'"):
        scale.kernel("gpu")(lambda x: x)


# ---------------------------------------------------------------- what tracers see


def test_compiled_graphs_see_the_kernels_where_the_slot_is_compiled(scale):
    """On a GPU the graph holds the kernels; here the branch is taken for tensors of the CPU, and no kernel is run."""
    from torch._dynamo.backends.common import aot_autograd

    from workbench.build.triton_compile import targeting

    wb.triton(scale, SCALE + BACKWARD)
    for slot in ("forward", "backward"):
        kernel = scale.runs(slot, "cpu").kernel
        traced = triton_run.traceable(kernel.source, kernel.plan)
        for name, count in kernel._names().items():
            scale.registration.inlined.put(name, "cpu", partial(traced, count))
    graphs = []

    def graph(module, inputs):
        graphs.append(module)
        return lambda args: [t.new_zeros(t.shape) if isinstance(t, Tensor) else t for t in inputs[:1]]

    def nodes(function, *args):
        graphs.clear()
        torch._dynamo.reset()
        with targeting(gpu.target()):
            torch.compile(function, backend=aot_autograd(fw_compiler=graph), fullgraph=True)(*args)
        return [str(n.target) for g in graphs for n in g.graph.nodes]

    with torch.no_grad():
        found = nodes(lambda x: scale(x, 3.0) + 1, X)
        assert "triton_kernel_wrapper_functional" in found and not any("scale" in n for n in found)
        [node] = [n for n in graphs[0].graph.nodes if "triton_kernel" in str(n.target)]
        assert node.kwargs["tensors_to_clone"] == ["out"] and node.kwargs["kwargs"]["BLOCK"] == 64
        backward = scale.backward_op
        assert "triton_kernel_wrapper_functional" in nodes(lambda g, x: backward(g, x, 3.0, x) + 1, X, X)
        program = torch.export.export(_Module(scale), (X,))
        assert any("scale" in str(n.target) for n in program.graph.nodes)
    assert "triton_kernel_wrapper_functional" in nodes(lambda x: scale(x, 3.0) + 1, X.clone().requires_grad_())
    for name in ("scale", "scale_backward"):
        scale.registration.inlined.drop(f"{scale.schema.namespace}::{name}", "cpu")
    with torch.no_grad():
        assert any("scale" in n for n in nodes(lambda x: scale(x, 3.0) + 1, X))


class _Module(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x):
        return self.op(x, 3.0)


def test_the_text_of_what_is_inlined_is_in_the_cache_key_and_resets_callers(scale, monkeypatch):
    monkeypatch.setattr(TritonKernel, "inlined", property(lambda self: self._text))
    wb.triton(scale, SCALE)
    first = torch.compiler.config.cache_key_tag
    traces = []
    monkeypatch.setattr(scale.registration, "forget_traces", lambda: traces.append(1))
    wb.triton(scale, SCALE)
    assert not traces and torch.compiler.config.cache_key_tag == first
    monkeypatch.undo()
    monkeypatch.setattr(TritonKernel, "inlined", property(lambda self: self._text))
    wb.triton(scale, SCALE.replace("Blocks", "Other blocks"))
    assert torch.compiler.config.cache_key_tag != first


# ---------------------------------------------------------------- the call


def test_the_fast_call_takes_what_is_usual_and_leaves_the_rest(scale):
    source = wb.triton(scale, SCALE).versions[1].source
    kernel = TritonKernel(source, scale.schema, "forward", device="cpu")
    assert triton_run.fast_text(kernel.plan) == (
        "def scale_launch(x, k=__default_k):\n"
        "    if x.is_contiguous() and (x.dtype,) in __tried and x.get_device() == __current():\n"
        "        __out = __launcher(x=x, k=k)\n"
        "        if __type(__out) is __Tensor:\n"
        "            return __out\n"
        "        return __refuse(__out)\n"
        "    return __slow(x, k)\n"
    )
    quick, slow = [], []
    call = triton_run.fast(kernel.plan, lambda x, k: quick.append(k) or x, lambda values: [slow.append(values["k"]) or values["x"]],
                           {(torch.float32,)}, "cpu")  # fmt: skip
    call(X, 1.0), call(X.t(), 2.0), call(X.double(), 3.0), call(X)
    assert quick == [1.0, 2.0] and slow == [2.0, 3.0]
    scale.registration.go_direct("cpu", call)
    scale(X, 7.0), scale(X.clone().requires_grad_(), 8.0)
    assert quick[2:] == [7.0]
    with pytest.raises(wb.SchemaError, match="scale returned nothing; scale gives out"):
        triton_run.fast(kernel.plan, lambda x, k: None, None, {(torch.float32,)}, "cpu")(X)
    scale.registration.go_direct("cpu", None)
    assert torch.equal(scale(X, 7.0), X * 7) and quick[3:] == []


def test_tensors_on_two_devices_are_refused(scale):
    plan = wb.triton(scale, SCALE).versions[1].kernel.plan
    call = triton_run.on_one_device(plan, lambda values: [])
    with pytest.raises(RuntimeError, match="w is on meta, x on cpu: all tensors must be on one"):
        call({"x": X, "w": X.to("meta")})


# ---------------------------------------------------------------- files


def test_triton_files(tmp_path, namespace):
    from workbench import files

    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "op.py").write_text(
        f"import workbench as wb\nfrom torch import Tensor\n@wb.op('{namespace}::scale')\n"
        "def scale(x: Tensor, k: float = 2.0) -> Tensor:\n    return x * k\n"
        "@scale.cases\ndef _(t):\n    yield t(3, 4), 3.0\n"
    )
    (folder / "blocks.py").write_text("import triton.language as tl\nSIZE = tl.constexpr(64)\n")
    (folder / "scale_triton.py").write_text("from blocks import SIZE\n" + SCALE.replace("BLOCK=64", "BLOCK=SIZE"))
    text = SCALE.partition("def scale")[0] + BACKWARD
    (folder / "scale_triton.backward.py").write_text(text)
    [op] = wb.load(folder)
    assert {(s, d) for s, d in op.slots} == {(s, d) for s in ("forward", "backward") for d in ("cpu", "cuda")}
    assert files.as_cell(folder / "scale_triton.py", "scale_triton.py").startswith(
        "%%triton scale --file scale_triton.py\nfrom blocks"
    )
    from workbench.watch import _headers

    assert _headers(folder / "scale_triton.py", None) == (folder / "blocks.py",)
    with pytest.raises(wb.SchemaError, match=r"a Triton file ends in _triton\.py"):
        wb.triton(op, SCALE, file=str(tmp_path / "scale.py"))


ROWS = """\
@triton.jit
def kernel(g, x, dx, stride, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * stride + c, c < n, 0.0) * tl.load(g + row * stride + c, c < n, 0.0)
    tl.store(dx + row * stride + c, 2 * v, c < n)

def square(x):
    return x * x

def backward(grad_out, x):
    dx = torch.empty_like(x)
    kernel[(x.size(0),)](grad_out, x, dx, x.stride(0), x.size(1), B=triton.next_power_of_2(x.size(1)))
    return dx
"""


def test_a_gradient_lies_as_a_backward_counts_on_that_reads_another_tensors_strides(namespace):
    @wb.op(f"{namespace}::square")
    def square(x: Tensor) -> Tensor:
        return x * x

    square.cases(lambda t: [(t(5, 123),)], dtypes=(torch.float32,))
    wb.triton(square, ROWS)
    x = torch.randn(5, 123, requires_grad=True)
    for total in (lambda y: y.sum(), lambda y: (y * torch.ones(123, 5).t()).sum()):  # strides 0 and 0; 1 and 5
        (gradient,) = torch.autograd.grad(total(square(x)), x)
        assert torch.equal(gradient, 2 * x)


def test_such_a_gradient_lies_as_its_output_where_that_is_not_contiguous():
    parsed = schema.parse("a::square(Tensor x) -> Tensor")
    plan = triton_call.Plan(parsed, "backward", (), "backward", ("grad_out", "x"), unread=("grad_out",))
    x, grad = torch.randn(123, 5).t(), torch.ones(()).expand(5, 123)
    assert triton_call.alike(plan, {"grad_out": grad, "x": x})["grad_out"].stride() == (1, 5)
    assert triton_call.alike(plan, {"grad_out": grad, "x": x.contiguous()})["grad_out"].stride() == (123, 1)
    kept = torch.randn(123, 5).t()
    assert triton_call.alike(plan, {"grad_out": kept, "x": x})["grad_out"] is kept
    laid = triton_call.alike(plan, {"grad_out": kept, "x": x, "out": x.contiguous()})["grad_out"]
    assert laid.stride() == (123, 1) and torch.equal(laid, kept)


def test_a_check_of_what_was_not_compiled_yet_names_no_architecture(namespace):
    op = wb.triton(f"{namespace}::scale", SCALE)
    (row,) = [r for r in op.check().rows if r.case == "forward cuda v1"]
    assert row.detail == "not compiled yet, not run: no GPU here"
