"""The CUDA and Triton files of kernels/: each agrees, checks, and gives right values and gradients on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import workbench as wb
from tests import live

pytestmark = pytest.mark.gpu
FOLDER = Path(__file__).parents[1] / "kernels"
FILES = {
    "rmsnorm cuda": ("rmsnorm", "rmsnorm.cu", "rmsnorm.backward.cu"),
    "rmsnorm triton": ("rmsnorm", "rmsnorm_triton.py"),
    "softmax cuda": ("softmax", "softmax.cu", "softmax.backward.cu"),
    "softmax triton": ("softmax", "softmax_triton.py"),
    "int8_quantise cuda": ("int8_quantise", "int8_quantise.cu"),
    "gelu_linear triton": ("gelu_linear", "gelu_linear_triton.py"),
    "flash triton": ("flash", "flash_triton.py"),
}
ROUNDING = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(scope="module", params=FILES)
def loaded(request):
    folder, *files = FILES[request.param]
    live.gone(f"lab::{folder}")
    [op] = wb.load(FOLDER / folder / "op.py")
    for file in files:
        wb.load(FOLDER / folder / file)
    yield request.param, op
    live.gone(op.qualname)


@pytest.fixture(autouse=True)
def compiled_afresh():
    torch._dynamo.reset()


def of(name):
    """A test of the files of one op alone."""
    return pytest.mark.parametrize("loaded", [f for f in FILES if f.startswith(name)], indirect=True, scope="module")


def seeded(loaded):
    torch.manual_seed(0)
    return loaded[1]


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda").to(dtype)


def near(got, wanted, dtype):
    scale = wanted.abs().max().clamp(min=1) if wanted.numel() else 1
    torch.testing.assert_close(
        got.double() / scale, wanted.double() / scale, rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
    )
    assert got.dtype is dtype
    assert got.device.type == "cuda"


def test_it_agreed_and_checks(loaded):
    said, op = loaded
    wanted = {("forward", "cuda")} | ({("backward", "cuda")} if "quantise" not in said else set())
    assert set(op.slots) == wanted
    for version in op.slots.values():
        assert version.trial.ok, str(version.trial)
        assert {o.status for o in version.trial.outcomes} == {"agree"}, str(version.trial)
        assert all(r.registers > 8 for r in version.kernel.resources)
        assert "gelu" in said or all(r.spills == 0 for r in version.kernel.resources), version.kernel.resources
    report = op.check()
    assert report.ok, str(report)


@of("rmsnorm")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 15), (2, 3, 129), (300, 257), (64,), (33, 4096), (5, 8200)])
def test_rmsnorm(loaded, shape, dtype):
    op = seeded(loaded)
    x, w = randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype)

    def exact(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    near(op(x, w), exact(x.double(), w.double()), dtype)
    wanted = live.gradients(exact, x.double(), w.double())
    for call in (op, torch.compile(lambda x, w: op(x, w), fullgraph=True, backend="aot_eager")):
        for got, want in zip(live.gradients(call, x, w), wanted, strict=True):
            near(got, want, dtype)


@of("rmsnorm")
def test_rmsnorm_of_what_is_not_aligned_or_not_contiguous(loaded):
    op = seeded(loaded)
    base, w = randn(65 * 64 + 1), randn(64)
    for x in (base[1:].view(65, 64), base[: 65 * 64].view(65, 64), randn(64, 65).t(), randn(65, 128)[:, ::2]):
        got = op(x, w)
        near(got, F.rms_norm(x.double(), (64,), w.double(), 1e-6), torch.float32)
        assert got.stride() == op.reference(x, w).stride()


@of("softmax")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 15), (2, 3, 129), (300, 257), (3, 40000)])
def test_softmax(loaded, shape, dtype):
    op = seeded(loaded)
    x = randn(*shape, dtype=dtype)

    def exact(x):
        return torch.softmax(x * 0.7, -1)

    near(op(x, 0.7), exact(x.double()), dtype)
    (got,), (want,) = live.gradients(lambda x: op(x, 0.7), x), live.gradients(exact, x.double())
    near(got, want, dtype)


@of("int8_quantise")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5, 123), (300, 257)])
def test_int8_quantise(loaded, shape, dtype):
    op = seeded(loaded)
    x = randn(*shape, dtype=dtype)
    q, scale = op(x)
    assert q.dtype is torch.int8
    torch.testing.assert_close(scale, x.abs().amax().float() / 127)
    assert ((q * scale - x.float()).abs() <= 0.5001 * scale).all()


@of("gelu_linear")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 33, 5), (128, 256, 64), (300, 70, 257)])
def test_gelu_linear(loaded, sizes, dtype):
    op = seeded(loaded)
    m, k, n = sizes
    x, w, b = randn(m, k, dtype=dtype), randn(n, k, dtype=dtype) / k**0.5, randn(n, dtype=dtype)

    def exact(x, w, b):
        return F.gelu(F.linear(x, w, b))

    near(op(x, w, b), exact(x.double(), w.double(), b.double()), dtype)
    for got, want in zip(
        live.gradients(op, x, w, b), live.gradients(exact, x.double(), w.double(), b.double()), strict=True
    ):
        near(got, want, dtype)
