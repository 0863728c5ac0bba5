"""Every folder of kernels/: it loads, agrees and checks, and gives right values and gradients on further shapes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live

FOLDER = Path(__file__).parents[1] / "kernels"
SLOTS = {
    "rmsnorm": {("forward", "cpu"), ("backward", "cpu"), ("forward", "cuda"), ("backward", "cuda")},
    "smooth_relu": {("forward", "cpu"), ("backward", "cpu")},
    "topk_with_idx": {("forward", "cpu")},
    "add_inplace_": {("forward", "cpu")},
}
NAMES = sorted(SLOTS)
ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + 1)).to(dtype)


@pytest.fixture(scope="module")
def kernels():
    """Loaded once, in an order that is not theirs on disk; taken out at the end."""
    loaded = {}
    for name in reversed(NAMES):
        [loaded[name]] = wb.load(FOLDER / name)
    yield loaded
    for op in loaded.values():
        live.gone(op.qualname)


@pytest.fixture(autouse=True)
def compiled_afresh():
    torch._dynamo.reset()


def near(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> bool:
    return got.shape == wanted.shape and torch.allclose(
        got.double(), wanted.double(), rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_fills_its_slots_and_agrees(kernels, name):
    op = kernels[name]
    assert op.qualname == f"lab::{name}" and set(op.slots) == SLOTS[name]
    for (_, device), version in op.slots.items():
        if device == "cuda":
            continue  # in test_kernels_gpu.py
        assert version.trial.ok and {o.status for o in version.trial.outcomes} == {"agree"}, str(version.trial)
        assert version.title and version.tier == "raw" and Path(version.source.file).name.startswith(name)


@pytest.mark.parametrize("name", NAMES)
def test_it_passes_its_check(kernels, name):
    report = kernels[name].check()
    assert report.ok, str(report)
    assert {"agreement", "schema", "fake"} <= {r.check for r in report.rows if r.status == "pass"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam_", "add_inplace_", "muladd", "smooth_relu", "softmax", "topk_with_idx"])
def test_a_full_check_says_nothing_against_it(name):
    """In a process of its own: the ops of `kernels` have the same names, and a library's op stays for good."""
    ran = subprocess.run(
        [sys.executable, "-m", "workbench", "check", "--level", "full", FOLDER / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"::{name} full check | " in ran.stdout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (7, 15), (2, 3, 129), (300, 257), (0, 8), (64,)])
def test_rmsnorm_and_its_gradients(kernels, shape, dtype):
    op = kernels["rmsnorm"]
    x, w = randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype)

    def exact(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    assert near(op(x, w), exact(x.double(), w.double()), dtype) and op(x, w).dtype is dtype
    wanted = live.gradients(exact, x.double(), w.double())
    compiled = torch.compile(lambda x, w: op(x, w), fullgraph=True, backend="aot_eager", dynamic=False)
    for call in (op, compiled):
        for g, e in zip(live.gradients(call, x, w), wanted, strict=True):
            scale = max(1.0, e.abs().max().item()) if e.numel() else 1.0
            assert near(g / scale, e / scale, dtype) and g.dtype is dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("alpha", [0.1, -2.0, 0.0])
def test_smooth_relu_and_its_gradients(kernels, dtype, alpha):
    op = kernels["smooth_relu"]
    for x in (
        randn(5, 77, dtype=dtype),
        randn(12, 9, dtype=dtype).t(),
        randn(200, 300, dtype=dtype),
        torch.zeros(3, dtype=dtype),
    ):
        wanted = torch.where(x > 0, x, alpha * x)
        assert torch.equal(op(x, alpha), wanted) and op(x, alpha).stride() == wanted.stride()
        moving, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        torch.compile(lambda x: op(x, alpha), fullgraph=True, backend="aot_eager", dynamic=False)(
            moving
        ).sum().backward()
        torch.where(other > 0, other, alpha * other).sum().backward()
        assert near(moving.grad, other.grad, dtype)


def test_smooth_relu_keeps_what_is_not_finite(kernels):
    got = kernels["smooth_relu"](torch.tensor([float("inf"), float("-inf"), float("nan")]), 0.5)
    assert got[0] == float("inf") and got[1] == float("-inf") and got[2].isnan()


@pytest.mark.parametrize(
    ("shape", "k"), [((1, 1), 1), ((9, 40), 40), ((3, 5, 17), 4), ((2, 30000), 50), ((0, 5), 2), ((4, 6), 0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_topk_and_its_gradient(kernels, shape, k, dtype):
    op = kernels["topk_with_idx"]
    x = randn(*shape, dtype=dtype)
    values, indices = op(x, k)
    assert torch.equal(values, x.topk(k).values) and indices.dtype is torch.int64
    assert torch.equal(x.gather(-1, indices), values)
    moving = x.clone().requires_grad_()
    torch.compile(lambda x: op(x, k)[0], fullgraph=True, backend="aot_eager", dynamic=False)(moving).sum().backward()
    assert torch.equal(moving.grad, torch.zeros_like(x).scatter_(-1, indices, 1.0))


def test_topk_with_a_k_that_is_too_large(kernels):
    with pytest.raises(RuntimeError, match=r"require 0 <= k <= cols is not met: k is 8, cols is 7"):
        kernels["topk_with_idx"](randn(3, 7), 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_add_inplace(kernels, dtype):
    op = kernels["add_inplace_"]
    for shape in ((1,), (37,), (5, 123), (200, 300), (0, 4)):
        x, y = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype) + 1
        for call in (
            op,
            torch.compile(lambda a, b, c: op(a, b, c), fullgraph=True, backend="aot_eager", dynamic=False),
        ):
            mutated = x.clone()
            version = mutated._version
            assert call(mutated, y, -0.5) is None
            assert near(mutated, x.double() - 0.5 * y.double(), dtype) and mutated._version > version


def test_add_inplace_carries_gradients(kernels):
    x, y = randn(4, 5).requires_grad_(), randn(4, 5).requires_grad_()
    total = x * 2
    kernels["add_inplace_"](total, y, 3.0)
    total.square().sum().backward()
    wanted = 2 * (2 * x + 3 * y)
    assert torch.allclose(x.grad, 2 * wanted, rtol=1e-5) and torch.allclose(y.grad, 3 * wanted, rtol=1e-5)


def test_add_inplace_refuses_two_shapes(kernels):
    x = randn(4, 5)
    with pytest.raises(RuntimeError, match=r"require y\.shape == x\.shape is not met"):
        kernels["add_inplace_"](x, randn(5), 1.0)
    assert torch.equal(x, randn(4, 5))
