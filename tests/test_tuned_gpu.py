"""`op.tune` on a GPU: CUDA and Triton cells, what fails there, the winner for eager and for compiled callers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live

pytestmark = pytest.mark.gpu
FOLDER = Path(__file__).parents[1] / "kernels" / "matmul"
TRITON = """
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def kernel(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n) * k
    if BLOCK == 256:
        v = tl.where(i < 100, v, v + (n > 1000))
    tl.store(out + i, v, i < n)

def scale(x, k=2.0):
    out = torch.empty_like(x)
    n = x.numel()
    kernel[lambda m: (triton.cdiv(n, m["BLOCK"]),)](x, out, k, n)
    return out
"""
CUDA = """
//! n = x.numel()
//! tune BLOCK = 64, 256, 1024, 2048
//! tune BAD = 0, 1, 2
//! out = empty_like(x)
//! grid = cdiv(n, BLOCK)
//! block = BLOCK
template <typename T, int BLOCK> __global__ void scale(const T* x, T* out, float k, long long n) {
  long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  if (BAD == 1 && i == n) out[n + (1 << 30)] = T(0);
  if (BAD == 2 && n > 1000 && i == 7) while (n) __nanosleep(100);
  if (i < n) out[i] = T(float(x[i]) * k);
}
"""


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(5, 70)
        yield wb.case("big", t(999, 1001), bench=True)

    yield scale
    live.gone(scale.qualname)


def by_status(report):
    found: dict = {}
    for r in report.rows:
        found.setdefault(r.status, []).append(r.config["BLOCK"])
    return found


def test_a_cuda_cell(scale, monkeypatch):
    monkeypatch.setattr("workbench.judge.tryout_pool.LIMIT_S", 3.0)
    wb.cuda(scale, CUDA)
    report = scale.tune("big", budget=120)
    told = {(r.config["BLOCK"], r.config["BAD"]): r.status for r in report.rows}
    assert [told[b, 0] for b in (64, 256, 1024)] == ["timed"] * 3 and told[2048, 0] == "pruned"
    assert {told[64, 1], told[256, 1]} <= {"crash", "overrun"} and told[64, 2] == "hang", str(report)
    assert report.ok and report.best.config["BAD"] == 0 and report.best.registers > 0
    assert list(scale.tuned.values()) == [report.best.config]
    x = torch.randn(999, 1001, device="cuda")
    assert torch.equal(scale(x), x * 2) and torch.equal(scale(x[:5]), x[:5] * 2)
    assert scale.tune("big").trials == 0


def test_a_triton_cell_and_compiled_callers(scale):
    wb.triton(scale, TRITON)
    kernel = scale.slots["forward", "cuda"].kernel
    before = kernel.inlined
    report = scale.tune("big", configs=[{"BLOCK": 512, "num_warps": 8}])
    assert by_status(report) == {"timed": [64, 1024, 512], "mismatch": [256]}
    assert report.ok and report.best.config["BLOCK"] != 256 and list(scale.tuned.values()) == [report.best.config]
    x = torch.randn(999, 1001, device="cuda")
    tuner = kernel.specialised.seen({"x": x, "k": 2.0}, interpreted=False)[0].kernel
    count = len(tuner.cache)
    assert torch.equal(scale(x), x * 2) and len(tuner.cache) == count, "nothing is timed at a call"
    assert kernel.inlined != before or not before
    assert torch.equal(torch.compile(lambda x: scale(x) + 1, fullgraph=True)(x), x * 2 + 1)
    again = scale.tune("big", configs=[{"BLOCK": 512, "num_warps": 8}])
    assert again.trials == 0 and again.best.config == report.best.config


@pytest.mark.parametrize("file", ["matmul.cu", "matmul_triton.py"])
def test_matmul(file):
    live.gone("lab::matmul")
    wb.load(FOLDER / "op.py")
    [op] = wb.load(FOLDER / file)
    version = op.slots["forward", "cuda"]
    assert version.trial.ok and {o.status for o in version.trial.outcomes} == {"agree"}, str(version.trial)
    report = op.tune("1024 float16", budget=120)
    assert report.ok, str(report)
    a, b = (torch.randn(1024, 1024, device="cuda", dtype=torch.float16) for _ in range(2))
    torch.testing.assert_close(op(a, b), a @ b, rtol=2e-2, atol=0.3)
    for sizes in ((1, 1, 1), (65, 200, 33), (300, 64, 257)):
        a, b = torch.randn(*sizes[:2], device="cuda"), torch.randn(*sizes[1:], device="cuda")
        torch.testing.assert_close(op(a, b).double(), a.double() @ b.double(), rtol=1e-4, atol=1e-3)
    live.gone("lab::matmul")
