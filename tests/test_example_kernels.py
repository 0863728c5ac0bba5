"""The CUDA and Triton cells of the example ops: compiled without a GPU, run and differentiated on one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.example_cells import CELLS, CUDA
from workbench import gpu
from workbench.reports.report import NOT_RUN

FLASH = (Path(__file__).parents[1] / "kernels" / "flash" / "flash_triton.py").read_text(encoding="utf-8")
# The kernels that each cell launches, once for each dtype of the op's cases.
KERNELS = {
    "rmsnorm": ["rmsnorm<{0}, {0}, 256>"],
    "rmsnorm.backward": ["by_rows<{0}, {0}>", "fold<{0}>"],
    "matmul": ["partial<{0}, 16>", "reduce<{0}>"],
    "kv_write_": ["kv_write_<{0}>"],
    "quantise": ["absmax<{0}>", "round_to<{0}>"],
    "dequantise": ["dequantise"],
    "topk": ["topk<{0}>"],
}
without_gpu = pytest.mark.skipif(gpu.present(), reason="what is said where there is no GPU")


def define(name: str) -> dict[str, object]:
    """The names that an op's cell defines, afresh."""
    names = re.findall(r'wb\.op\("(lab::\w+)"', CELLS[name])
    for qualname in names:
        live.gone(qualname)
    scope = {"wb": wb, "torch": torch, "Tensor": Tensor}
    exec(compile(CELLS[name], f"<{name}>", "exec"), scope)
    return scope


@pytest.fixture(scope="module")
def ops():
    """Every op with its CUDA or Triton cells in, and the lines that they ended in."""
    scope, lines = {}, {}
    for name in ("rmsnorm", "matmul", "flash", "kv_write_", "quantise", "topk"):
        scope |= define(name)
    found = {"flash": scope["flash"]}
    for target, text in CUDA.items():
        found[target.partition(".")[0]] = op = wb.cuda(target, text)
        lines[target] = op.last_line
    yield found, lines
    for op in found.values():
        live.gone(op.qualname)


@pytest.fixture(scope="module")
def flash(ops):
    """`flash` with its cell in, which fills the forward and the backward. Float32 and float16."""
    found, lines = ops
    op = found["flash"]

    @op.cases(dtypes=(torch.float32, torch.float16))
    def _(t):
        yield t(1, 2, 100, 32), t(1, 2, 100, 32), t(1, 2, 100, 32)
        yield wb.case("causal", t(1, 2, 100, 32), t(1, 2, 100, 32), t(1, 2, 100, 32), causal=True)
        yield wb.case("4k", *(t(4, 16, 4096, 128, dtype=torch.float16) for _ in range(3)), causal=True, bench=True)

    wb.triton("flash", FLASH)
    return op


# ---------------------------------------------------------------- without a GPU


@without_gpu
@pytest.mark.parametrize("target", CUDA)
def test_a_cuda_cell_is_compiled_and_not_run(ops, target):
    line = ops[1][target]
    assert line.installed
    assert line.unrun == "compiled for sm_90, not run: no GPU here"
    assert re.search(r" \| compiled for sm_90, not run: no GPU here \| \d+ regs, no spills", str(line))
    assert {o.status for o in line.rows} <= {"skip"}
    assert {o.detail for o in line.rows} <= {NOT_RUN}


@without_gpu
@pytest.mark.parametrize("target", CUDA)
def test_it_is_compiled_for_all_dtypes_of_the_cases(ops, target):
    name, _, slot = target.partition(".")
    version = ops[0][name].slots[slot or "forward", "cuda"]
    kinds = ["float", "__half", "__nv_bfloat16"] if name == "rmsnorm" else ["float"]
    assert [r.kernel for r in version.kernel.resources] == [k.format(d) for d in kinds for k in KERNELS[target]]
    assert all(8 < r.registers <= 64 and r.spills == 0 for r in version.kernel.resources)
    assert str(version).endswith(NOT_RUN) or not ops[0][name].has_cases


@without_gpu
def test_the_reference_goes_on_serving_the_cpu(ops):
    x, w = torch.randn(4, 128), torch.randn(128)
    op = ops[0]["rmsnorm"]
    assert torch.equal(op(x, w), op.reference(x, w, 1e-6))
    assert ("forward", "cpu") not in op.slots
    q, scale = ops[0]["quantise"](x)
    assert torch.equal(ops[0]["dequantise"](q, scale), q * scale)


@without_gpu
def test_the_check_says_that_it_was_not_run(ops):
    report = ops[0]["rmsnorm"].check()
    assert report.ok, str(report)
    said = [(r.case, r.detail) for r in report.rows if r.status == "skip" and "not run: no GPU" in r.detail]
    assert said == [
        (f"{slot} cuda v{n}", "compiled for sm_90, not run: no GPU here")
        for n, slot in ((1, "forward"), (2, "backward"))
    ]


@without_gpu
def test_flash_agrees_in_the_interpreter(flash):
    assert set(flash.slots) == {(slot, device) for slot in ("forward", "backward") for device in ("cpu", "cuda")}
    for version in flash.slots.values():
        assert {(o.case, o.dtype, o.status) for o in version.trial.outcomes} == {
            (case, dtype, "agree") for case in ("1x2x100x32", "causal") for dtype in ("float32", "float16")
        }
        assert version.trial.closest.share < 0.9
    taken = flash.slots["backward", "cuda"].kernel.resources
    assert {r.kernel for r in taken} == {"queries_kernel", "keys_kernel"}
    assert all(r.spills == 0 for r in taken)


@without_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_flash_called_on_tensors_of_the_cpu(flash, causal):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, 20) for n in (37, 50, 50))  # sizes that no case has
    for got, wanted in zip(flash(q, k, v, causal, 0.3), flash.reference(q, k, v, causal, 0.3), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    got = live.gradients(lambda *a: flash(*a, causal, 0.3)[0], q, k, v)
    wanted = live.gradients(lambda *a: flash.reference(*a, causal, 0.3)[0], q, k, v)
    for g, e in zip(got, wanted, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


@without_gpu
def test_the_folder_of_flash_loads():
    live.gone("lab::flash")
    [op] = wb.load(Path(__file__).parents[1] / "kernels" / "flash")
    assert {o.case for o in op.slots["backward", "cpu"].trial.outcomes} == {"1x2x100x32", "causal", "more keys"}
    assert all({o.status for o in v.trial.outcomes} == {"agree"} for v in op.slots.values())
    with pytest.raises(
        RuntimeError, match=r"flash_triton.py, line \d+: ValueError: q, k, v are \(\.\.\., length, size\)"
    ):
        op.versions[1](torch.ones(1, 4, 16), torch.ones(1, 4, 16), torch.ones(1, 5, 16))
    live.gone("lab::flash")


# ---------------------------------------------------------------- on a GPU

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def on_gpu(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda").to(dtype)


def near(got, wanted, dtype):
    scale = wanted.abs().max().clamp(min=1)
    torch.testing.assert_close(
        got.double() / scale, wanted.double() / scale, rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
    )
    assert got.dtype is dtype
    assert got.device.type == "cuda"


def both(op):
    """The op called eagerly, then from a compiled graph."""
    torch._dynamo.reset()
    return op, torch.compile(lambda *a: op(*a), fullgraph=True, backend="aot_eager")


@pytest.mark.gpu
@pytest.mark.parametrize("target", CUDA)
def test_a_cuda_cell_agrees(ops, target):
    line = ops[1][target]
    assert line.installed and not line.unrun
    assert {o.status for o in line.rows} <= {"agree"}, str(line)
    assert "regs, no spills" in line.resources


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rmsnorm", "matmul", "kv_write_", "topk"])
def test_it_checks(ops, name):
    op = ops[0][name]
    report = op.check()
    assert report.ok, str(report)
    judged = {o.status for v in op.slots.values() for o in v.trial.outcomes}
    assert judged == {"agree"}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 128), (5, 123), (2, 3, 1), (300, 8192)])
def test_rmsnorm_on_a_gpu(ops, shape, dtype):
    x, w = on_gpu(*shape, dtype=dtype), on_gpu(shape[-1], dtype=dtype)
    exact = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    wanted = live.gradients(exact, x.double(), w.double())
    for call in both(ops[0]["rmsnorm"]):
        near(call(x, w), exact(x.double(), w.double()), dtype)
        for got, want in zip(live.gradients(call, x, w), wanted, strict=True):
            near(got, want, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(65, 130, 33), (1, 1, 1), (16, 4096, 70)])
def test_matmul_on_a_gpu(ops, sizes):
    m, k, n = sizes
    a, b = on_gpu(m, k) / k**0.5, on_gpu(k, n)
    wanted = live.gradients(torch.mm, a.double(), b.double())
    for call in both(ops[0]["matmul"]):
        near(call(a, b), a.double() @ b.double(), torch.float32)
        for got, want in zip(live.gradients(call, a, b), wanted, strict=True):
            near(got, want, torch.float32)


@pytest.mark.gpu
def test_caches_on_a_gpu_are_written_where_the_table_says(ops):
    op = ops[0]["kv_write_"]
    table = torch.randperm(32, device="cuda")[:24].view(3, 8).to(torch.int32)
    pos = torch.tensor([0, 63, 127], dtype=torch.int32, device="cuda")
    k, v, two = on_gpu(3, 4, 64), on_gpu(3, 4, 64), torch.tensor(2.0, device="cuda")
    for call in both(op):
        caches = on_gpu(32, 2, 16, 4, 64)
        before, kv = caches.clone(), caches.clone()
        assert call(k, v, kv[:, 0], kv[:, 1], table, pos, two, None) is None
        op.reference(k, v, before[:, 0], before[:, 1], table, pos, two, None)
        torch.testing.assert_close(kv, before)
        for b in range(3):
            block, offset = table[b, pos[b] // 16].item(), pos[b].item() % 16
            assert torch.equal(kv[block, 0, offset], k[b] / 2)
            assert torch.equal(kv[block, 1, offset], v[b])


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1,), (5, 123), (300, 257)])
def test_quantised_on_a_gpu_and_back(ops, shape):
    x = on_gpu(*shape)
    for call in both(ops[0]["quantise"]):
        q, scale = call(x)
        assert q.dtype is torch.int8
        torch.testing.assert_close(scale, x.abs().amax() / 127)
        assert ((q * scale - x).abs() <= 0.5001 * scale).all()
    for call in both(ops[0]["dequantise"]):
        assert torch.equal(call(q, scale), q * scale)
        moving = scale.clone().requires_grad_()
        call(q, moving).sum().backward()
        torch.testing.assert_close(moving.grad, q.float().sum())
    for name in ("quantise", "dequantise"):
        assert ops[0][name].check().ok, str(ops[0][name].last_check)


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "k"), [((4, 128), 5), ((3, 7), 7), ((2, 3, 1000), 1)])
def test_topk_on_a_gpu(ops, shape, k):
    x = on_gpu(*shape)
    for call in both(ops[0]["topk"]):
        values, indices = call(x, k)
        assert torch.equal(values, x.topk(k).values)
        assert torch.equal(x.gather(-1, indices), values)


@pytest.mark.gpu
def test_topk_with_a_k_that_is_too_large_does_not_reach_the_gpu(ops):
    with pytest.raises(RuntimeError, match=r"require 0 <= k <= cols is not met"):
        ops[0]["topk"](on_gpu(3, 7), 8)


@pytest.mark.gpu
def test_flash_agrees_and_checks_on_a_gpu(flash):
    assert set(flash.slots) == {("forward", "cuda"), ("backward", "cuda")}
    for version in flash.slots.values():
        assert {o.status for o in version.trial.outcomes} == {"agree"}, str(version.trial)
        assert len(version.trial.outcomes) >= 4
    report = flash.check()
    assert report.ok, str(report)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("causal", "length", "keys", "width"),
    [(False, 100, 100, 32), (True, 100, 100, 32), (False, 37, 50, 20), (True, 1030, 1030, 64)],
)
def test_flash_on_a_gpu(flash, causal, length, keys, width, dtype):
    q, k, v = (on_gpu(2, 2, n, width, dtype=dtype) for n in (length, keys, keys))
    exact = lambda *a: flash.reference(*a, causal, None)[0]
    out, lse = flash(q, k, v, causal)
    near(out, exact(q.double(), k.double(), v.double()), dtype)
    near(lse, flash.reference(q.double(), k.double(), v.double(), causal, None)[1].float(), torch.float32)
    wanted = live.gradients(exact, q.double(), k.double(), v.double())
    for call in both(lambda *a: flash(*a, causal)[0]):
        for got, want in zip(live.gradients(call, q, k, v), wanted, strict=True):
            near(got, want, dtype)
