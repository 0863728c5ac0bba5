"""Triton cells on a GPU: the worker's trial, what Inductor makes of them, and who follows after a re-run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import gradients
from tests.tiers.test_triton import BACKWARD, NORM, NORM_BACKWARD, SCALE

pytestmark = pytest.mark.gpu

TUNED = SCALE.replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((128, 1), (256, 2))], key=["n"])\n'
    '@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})\n@triton.jit',
)
TUNED = TUNED.replace("n, BLOCK: tl.constexpr", "n, BLOCK: tl.constexpr, EVEN: tl.constexpr").replace(
    ", BLOCK=64)", ")"
)
TUNED = TUNED.replace("[(triton.cdiv(x.numel(), 64),)]", '[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)]')


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 8), 3.0
        yield wb.case("odd", t(5, 123))

    return scale


@pytest.fixture(scope="module", autouse=True)
def in_this_process():
    """Inductor compiles these few graphs sooner than it starts processes to do so."""
    with torch._inductor.config.patch(compile_threads=1):
        yield


def code_of(function, *args) -> tuple[object, str]:
    """What Inductor makes of a function: its result, and the code. Seconds: see `graph_of`."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    found, code = run_and_get_code(torch.compile(function, fullgraph=True), *args)
    return found, "\n".join(code)


def graph_of(function, *args) -> tuple[object, list[str]]:
    """A compiled call without Inductor: its result, and what the graph calls."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    called: list[str] = []

    def note(graph, inputs):
        called.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    found = torch.compile(function, backend=aot_autograd(fw_compiler=note), fullgraph=True)(*args)
    return found, called


LAUNCH = "triton_kernel_wrapper_functional"


def x(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda")


def test_a_cell_runs_on_the_gpu(scale):
    wb.triton(scale, SCALE)
    version = scale.runs("forward", "cuda")
    assert version.number == 1 and ("forward", "cpu") not in scale.slots
    assert {o.status for o in version.trial.outcomes} == {"agree"} and len(version.trial.outcomes) == 4
    assert version.kernel.resources and version.rough_us > 0 and "regs" in scale.last_line.resources
    for t in (x(100), x(3, 5).t(), x(7).bfloat16(), x(4, 4).half()):  # half was not tried before
        got = scale(t, 3.0)
        assert torch.equal(got, t * 3) and got.stride() == (t * 3).stride()
    assert torch.equal(scale(torch.ones(3), 3.0), torch.full((3,), 3.0))  # the reference, on the CPU


def test_the_kernel_runs_and_not_the_reference(scale):
    wb.triton(scale, SCALE.replace("* k,", "* k + 1e-30,"))
    zero = torch.zeros(3, device="cuda")
    assert scale(zero).tolist() == [pytest.approx(1e-30, rel=1e-3, abs=0)] * 3
    assert scale.torch_op(zero).tolist() == scale(zero).tolist()


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("* k,", "* k + 1,", "mismatch"),
    ("tl.load(x + i,", "tl.load(x + i + 100000000000,", "crash"),
    # Of a loop that stores nothing ptxas leaves nothing: it takes a volatile load to hang.
    ("    tl.store", "    while tl.load(x, volatile=True) < 1e30:\n        k += 0.0\n    tl.store", "hang"),
])  # fmt: skip
def test_what_is_wrong_is_refused_and_this_context_lives(scale, old, new, kind, monkeypatch):
    monkeypatch.setattr("workbench.judge.examine.LIMIT_S", 2.0)
    wb.triton(scale, SCALE)
    with pytest.raises(wb.TrialError) as raised:
        wb.triton(scale, SCALE.replace(old, new))
    assert raised.value.kind == kind, raised.value
    t = x(9)
    assert torch.equal(scale(t, 3.0), t * 3)


def test_arguments_that_are_not_contiguous_are_tried(namespace):
    op = wb.op(f"{namespace}::scale")(times)
    op.cases(lambda t: iter([wb.case("transposed", t(8, 4).t(), 3.0), wb.case("every second", t(4, 8)[:, ::2])]))
    wb.triton(op, SCALE)
    assert {o.status for o in op.runs("forward", "cuda").trial.outcomes} == {"agree"}
    report = op.check(level="full")
    assert report.ok and any(r.check == "layouts" and r.status == "pass" for r in report.rows), str(report)


@pytest.mark.alone
def test_compiling_is_no_hanging(namespace, monkeypatch):
    """Of a launcher that looks at its data nothing is compiled beforehand; this one compiles longer than a trial lasts."""
    monkeypatch.setattr("workbench.judge.examine.LIMIT_S", 1.5)
    op = wb.op(f"{namespace}::scale")(times)
    op.cases(lambda t: iter([(t(4, 8), 3.0)]))
    text = SCALE.replace("    out =", "    assert float(x.abs().sum()) >= 0\n    out =")
    slow = "    for j in tl.static_range(8000):\n        k = k + (j - j)\n    tl.store"
    wb.triton(op, text.replace("    tl.store", slow))
    version = op.runs("forward", "cuda")
    assert version.trial.ok and "not known before it runs" in version.kernel.note


def times(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k


def test_each_configuration_is_tried_and_the_wrong_one_named(scale):
    with pytest.raises(wb.TrialError, match=r"differs on .*kernel with BLOCK=256, num_warps=2"):
        wb.triton(scale, TUNED.replace("* k,", "* tl.where(BLOCK == 256, 0.0, k),"))
    small = TUNED.replace("    tl.store", '    tl.static_assert(BLOCK < 256, "too large")\n    tl.store')
    wb.triton(scale, small)
    assert any("BLOCK=256" in n and "does not fit" in n for n in scale.runs("forward", "cuda").trial.notes)
    assert torch.equal(scale(torch.ones(9, device="cuda"), 3.0), torch.full((9,), 3.0, device="cuda"))


def test_without_cases_the_first_call_is_the_trial(namespace):
    op = wb.op(f"{namespace}::scale")(times)
    wb.triton(op, SCALE)
    assert "no cases: it is tried at its first call" in str(op.last_line)
    t = x(5, 7).bfloat16()
    assert torch.equal(op(t, 3.0), t * 3) and torch.equal(op(x(2).fill_(1), 3.0), x(2).fill_(3))
    version = op.runs("forward", "cuda")
    assert version.trial.ok and len(version.trial.outcomes) == 1 and version.kernel.resources
    wrong = wb.op(f"{namespace}::wrong")(times)
    wb.triton(wrong, SCALE.replace("def scale(", "def wrong(").replace("* k,", "* k + 1,"))
    with pytest.raises((wb.TrialError, RuntimeError), match="was tried at its first call and differs"):
        wrong(t, 3.0)


def test_a_launch_finds_what_was_compiled_for_it(scale):
    """The build compiles here what the trial and the first call launch: neither compiles anything."""
    from triton import knobs

    hits = []
    wb.triton(scale, TUNED.replace("* k,", "* k * 1.0,"))
    knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
    try:
        scale(x(4, 8), 3.0)
    finally:
        knobs.compilation.listener = None
    assert hits and all(hits)


# ---------------------------------------------------------------- compiled callers


def test_inductor_sees_the_kernel(scale):
    wb.triton(scale, SCALE.replace("kernel", "scale_kernel"))
    t = x(64)
    found, code = code_of(lambda t: scale(t, 3.0) + 1, t)
    assert torch.allclose(found, t * 3 + 1)
    assert "scale_kernel" in code and f"torch.ops.{scale.schema.namespace}" not in code
    with torch._inductor.config.patch(cpp_cache_precompile_headers=False):  # which not every compiler's folder takes
        cpu, called = graph_of(lambda t: scale(t, 3.0) + 1, torch.ones(4))
    assert torch.equal(cpu, torch.full((4,), 4.0)) and LAUNCH not in called


def test_inductor_sees_forward_and_backward(scale):
    wb.triton(scale, SCALE.replace("kernel", "scale_kernel") + BACKWARD.replace("kernel", "scale_kernel"))
    t = x(64)
    [wanted] = gradients(lambda t: t * 3, t)
    torch._dynamo.reset()
    [got] = gradients(torch.compile(lambda t: scale(t, 3.0), fullgraph=True), t)
    assert torch.allclose(got, wanted, rtol=1e-5)
    [eager] = gradients(lambda t: scale(t, 3.0), t)
    assert torch.allclose(eager, wanted, rtol=1e-5)


def test_autotune_and_heuristics(scale):
    wb.triton(scale, TUNED.replace("kernel", "tuned_kernel"))
    t = x(1000)
    assert torch.equal(scale(t, 3.0), t * 3)
    found, code = code_of(lambda t: scale(t, 3.0) + 1, t)
    assert torch.allclose(found, t * 3 + 1) and "tuned_kernel" in code


def test_heuristics_alone(scale):
    text = SCALE.replace("@triton.jit", '@triton.heuristics({"BLOCK": lambda a: 64})\n@triton.jit').replace(
        ", BLOCK=64)", ")"
    )
    wb.triton(scale, text)
    t = x(100)
    found, called = graph_of(lambda t: scale(t, 3.0) + 1, t)
    assert torch.equal(scale(t, 3.0), t * 3) and torch.allclose(found, t * 3 + 1) and LAUNCH in called


def test_an_autotuner_with_hooks_stays_opaque_and_right(scale):
    hooked = TUNED.replace('key=["n"]', 'key=["n"], pre_hook=lambda args, reset_only=False: None')
    wb.triton(scale, hooked)
    t = x(1000)
    found, called = graph_of(lambda t: scale(t, 3.0) + 1, t)
    assert torch.allclose(found, t * 3 + 1) and not scale.runs("forward", "cuda").kernel.inlined
    assert LAUNCH not in called and any(scale.name in c for c in called)


def test_a_changed_helper_or_constant_reaches_compiled_callers(scale, tmp_path, monkeypatch):
    """Graphs of CUDA included, which hold the kernels that were there when they were recorded."""
    monkeypatch.chdir(tmp_path)
    text = "from helpers import plus\nADD = tl.constexpr(0.0)\n" + SCALE.replace("* k,", "* k + ADD + plus(i),")
    helper = "import triton\nimport triton.language as tl\n@triton.jit\ndef plus(i):\n    return i * {}\n"
    (tmp_path / "helpers.py").write_text(helper.format("0.0"))
    wb.triton(scale, text)
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: scale(t, 3.0) + 1, fullgraph=True, mode="reduce-overhead")
    zero = torch.zeros(3, device="cuda")

    def calls() -> list[float]:
        for _ in range(3):  # it records at the second call
            found = compiled(zero)
        return found.tolist()

    assert calls() == [1.0, 1.0, 1.0] and scale(zero).tolist() == [0.0, 0.0, 0.0]
    wb.triton(scale, text.replace("constexpr(0.0)", "constexpr(5.0)"), force=True)
    assert scale(zero).tolist() == [5.0, 5.0, 5.0] and calls() == [6.0, 6.0, 6.0]
    (tmp_path / "helpers.py").write_text(helper.format("1.0"))
    wb.triton(scale, text, force=True)
    assert scale(zero).tolist() == [0.0, 1.0, 2.0] and calls() == [1.0, 2.0, 3.0]


def test_export_keeps_the_op(scale):
    wb.triton(scale, SCALE)

    class Model(torch.nn.Module):
        def forward(self, t):
            return scale(t, 3.0)

    program = torch.export.export(Model(), (x(8),))
    assert any("scale" in str(n.target) for n in program.graph.nodes)


# ---------------------------------------------------------------- gradients, streams, devices


@pytest.mark.parametrize("compiled", [False, True])
def test_saved_tensors_and_gradients(namespace, compiled):
    @wb.op(f"{namespace}::norm", returns="y", saves="rstd")
    def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @norm.cases
    def _(t):
        yield t(3, 5), t(5)
        yield wb.case("wide", t(4, 130), t(130))

    wb.triton(norm, NORM)
    wb.triton(f"{norm.qualname}.backward", NORM_BACKWARD)
    torch._dynamo.reset()
    called = norm
    if compiled:
        called = torch.compile(lambda a, b: norm(a, b), backend="aot_eager", fullgraph=True, dynamic=True)
    for rows, columns in ((3, 5), (8, 33)):
        given = x(rows, columns), x(columns)
        for got, wanted in zip(gradients(called, *given), gradients(norm.reference, *given), strict=True):
            assert torch.allclose(got, wanted, atol=1e-4)


def test_a_side_stream_and_a_cuda_graph(scale):
    wb.triton(scale, SCALE)
    t = torch.ones(1 << 16, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = scale(t, 3.0)
    stream.synchronize()
    assert torch.equal(found, t * 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = scale(t, 3.0)
    t.fill_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(held, torch.full_like(t, 6.0))


def test_tensors_on_two_devices_are_refused(namespace):
    @wb.op(f"{namespace}::add")
    def add(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    @add.cases
    def _(t):
        yield t(8), t(8)

    wb.triton(
        add,
        """\
@triton.jit
def kernel(a, b, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(a + i, i < n) + tl.load(b + i, i < n), i < n)
def add(a, b):
    out = torch.empty_like(a)
    kernel[(triton.cdiv(a.numel(), 64),)](a, b, out, a.numel(), B=64)
    return out
""",
    )
    with pytest.raises(RuntimeError, match="all tensors must be on one"):
        add(x(8), torch.ones(8))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU here")
def test_a_second_gpu(scale):
    wb.triton(scale, SCALE)
    t = torch.randn(100, device="cuda:1")
    assert torch.equal(scale(t, 3.0), t * 3) and torch.cuda.current_device() == 0
    with torch.cuda.device(1):  # torch's own wrapper of a captured launch guards no device, Inductor's code does
        found, called = graph_of(lambda t: scale(t, 3.0), t)
    assert torch.equal(found, t * 3) and LAUNCH in called
    torch._dynamo.reset()
    assert torch.equal(torch.compile(lambda t: scale(t, 3.0) + 1, fullgraph=True)(t), t * 3 + 1)


def test_a_launcher_in_an_ordinary_cell(scale, tmp_path):
    import importlib.util

    file = tmp_path / "ordinary.py"
    file.write_text("import torch, triton\nimport triton.language as tl\n" + SCALE)
    spec = importlib.util.spec_from_file_location("ordinary_cell", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scale.kernel("cuda")(module.scale)
    t = x(100)
    assert torch.equal(scale(t, 3.0), t * 3) and scale.runs("forward", "cuda").trial.ok
    found, _ = graph_of(lambda t: scale(t, 3.0) + 1, t)
    assert torch.equal(found, t * 3 + 1)
