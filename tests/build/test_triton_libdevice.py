"""libdevice in Triton's interpreter: what its functions compute, however a cell imports them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from workbench.build import triton_module
from workbench.build.triton_interpret import interpreting
from workbench.build.triton_libdevice import compute
from workbench.source import Source

CELL = """\
{imports}
@triton.jit
def kernel(x, y, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v, w = tl.load(x + i, i < n, 0.0), tl.load(y + i, i < n, 1.0)
    tl.store(out + i, {expression}, i < n)
def f(x, y):
    out = torch.empty_like(x)
    kernel[(1,)](x, y, out, x.numel(), B=16)
    return out
"""
X, Y = torch.linspace(-0.9, 0.9, 12), torch.linspace(0.5, 2, 12)


def run(imports: str, expression: str, x: torch.Tensor = X, y: torch.Tensor = Y) -> torch.Tensor:
    text = CELL.format(imports=imports, expression=expression)
    module = triton_module.load(Source(text, "triton", file="cell [3]", first_line=2), interpreted=True)
    with interpreting():
        return module.f(x, y)


@pytest.mark.parametrize(("imports", "call"), [
    ("from triton.language.extra import libdevice", "libdevice.asin(v)"),
    ("from triton.language.extra.cuda import libdevice", "libdevice.asin(v)"),
    ("from triton.language.extra.libdevice import asin", "asin(v)"),
    ("from triton.language.extra.cuda.libdevice import asin as arcsin", "arcsin(v)"),
    ("import triton.language.extra.libdevice", "tl.extra.libdevice.asin(v)"),
])  # fmt: skip
def test_however_it_is_imported(imports, call):
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as real

    before = dict(vars(libdevice)), dict(vars(real))
    assert torch.allclose(run(imports, call), X.asin(), atol=1e-6)
    assert (dict(vars(libdevice)), dict(vars(real))) == before


@pytest.mark.parametrize(("expression", "wanted"), [
    ("libdevice.tanh(v)", X.tanh()), ("libdevice.erf(v)", X.erf()), ("libdevice.rsqrt(w)", Y.rsqrt()),
    ("libdevice.pow(w, v)", Y**X), ("libdevice.pow(w, 2.0)", Y**2), ("libdevice.atan2(v, w)", torch.atan2(X, Y)),
    ("libdevice.fma(v, w, v)", X * Y + X), ("libdevice.fast_dividef(v, w)", X / Y), ("libdevice.isnan(v)", X * 0),
    ("libdevice.round(v * 2.5)", torch.sign(X) * (X.abs() * 2.5 + 0.5).floor()), ("libdevice.div_rn(v, w)", X / Y),
    ("libdevice.float2int_rz(w * 3)", (Y * 3).trunc()), ("libdevice.exp(v.to(tl.float64)).to(tl.float32)", X.exp()),
    ("libdevice.float_as_int(v).to(tl.float32)", X.view(torch.int32).float()),
])  # fmt: skip
def test_what_functions_make(expression, wanted):
    got = run("from triton.language.extra import libdevice", expression)
    assert torch.allclose(got, wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("symbol", "args", "wanted"), [
    ("__nv_clz", [np.int32([1, -1, 0])], [31, 0, 32]), ("__nv_popcll", [np.int64([-1, 5])], [64, 2]),
    ("__nv_ffs", [np.int32([8, 0])], [4, 0]), ("__nv_erfcf", [np.float32([0.0])], [1.0]),
    ("__nv_isnand", [np.float64([math.nan, 1])], [1, 0]), ("__nv_lgamma", [np.float64([4])], [math.log(6)]),
    ("__nv_tgammaf", [np.float32([4])], [6]), ("__nv_remainderf", [np.float32([5]), np.float32([3])], [-1]),
    ("__nv_logbf", [np.float32([10])], [3]), ("__nv_saturatef", [np.float32([-1, 0.5, 2])], [0, 0.5, 1]),
    ("__nv_fast_log2f", [np.float32([8])], [3]), ("__nv_fsqrt_rn", [np.float32([9])], [3]),
    ("__nv_fmaf_rn", [np.float32([2]), np.float32([3]), np.float32([1])], [7]),
    ("__nv_fabsf", [np.float32([-2])], [2]), ("__nv_exp10f", [np.float32([2])], [100]),
])  # fmt: skip
def test_what_symbols_compute(symbol, args, wanted):
    assert compute(symbol, *args).tolist() == pytest.approx(wanted)


def test_a_function_that_is_not_known_says_so_on_its_line():
    with pytest.raises(Exception, match="__nv_ynf of libdevice runs on a GPU alone") as raised:
        run("from triton.language.extra import libdevice", "libdevice.yn(1, v)")
    assert "cell [3], line 7: " in triton_module.told(raised.value, "cell [3]")
