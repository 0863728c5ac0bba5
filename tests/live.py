"""Ops for tests of live cells. Each is defined afresh under the same name, so that its launcher comes from the store."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import torch
from torch import Tensor

import workbench as wb
from workbench import define

SCALE = """\
//! n = x.numel()
//! out = empty_like(x)
// Times k
template <typename T>
void scale(const T* x, T* out, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * k);
}
"""
SCALE_BACKWARD = """\
//! n = x.numel()
//! grad_x = empty_like(x)
void backward(const float* grad_out, float* grad_x, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_out[i] * k;
}
"""
NORM = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! y    = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
// Sequential sums
void norm(const float* x, const float* w, float* y, float* rstd, double eps, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float s = 0;
    for (int64_t c = 0; c < cols; ++c) s += x[r * cols + c] * x[r * cols + c];
    float i = 1.0f / __builtin_sqrtf(s / cols + float(eps));
    rstd[r] = i;
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = x[r * cols + c] * i * w[c];
  }
}
"""
NORM_BACKWARD = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! grad_x = empty(x.shape)
//! grad_w = zeros(cols)
void backward(const float* grad_y, const float* x, const float* w, const float* rstd, float* grad_x, float* grad_w,
              int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float *g = grad_y + r * cols, *from = x + r * cols;
    float i = rstd[r], d = 0;
    for (int64_t c = 0; c < cols; ++c) d += g[c] * w[c] * from[c];
    d *= i * i * i / cols;
    for (int64_t c = 0; c < cols; ++c) {
      grad_x[r * cols + c] = g[c] * w[c] * i - d * from[c];
      grad_w[c] += g[c] * from[c] * i;
    }
  }
}
"""
NORM_PARTIAL = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! grad_w = zeros(cols)
void backward(const float* grad_y, const float* x, const float* rstd, float* grad_w, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) grad_w[c] += grad_y[r * cols + c] * x[r * cols + c] * rstd[r];
}
"""


def gone(qualname: str) -> None:
    """No op bears that name any more."""
    op = wb.ops.get(qualname)
    if op is not None:
        op.restore(0)
        define.forget(op)


def scale(*, cases: bool = True) -> wb.Op:
    """`live::scale(x, k=2.0)`: x times k, with two small cases."""
    gone("live::scale")

    @wb.op("live::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    if cases:

        @scale.cases
        def _(t):
            yield t(4, 8), 3.0
            yield wb.case("odd", t(5, 3))

    return scale


def norm() -> wb.Op:
    """`live::norm(x, w, eps)`: rows by the reciprocal of their root mean square; a forward may save `rstd`."""
    gone("live::norm")

    @wb.op("live::norm", returns="y", saves="rstd")
    def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @norm.cases
    def _(t):
        yield t(4, 16), t(16)
        yield wb.case("odd", t(3, 5, 7), t(7))

    return norm


def gradients(function, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The gradients of the sum of squares of what `function` returns."""
    moving = [t.detach().clone().requires_grad_() for t in inputs]
    return torch.autograd.grad(function(*moving).square().sum(), moving)


def close(got: Tensor, wanted: Tensor) -> bool:
    return got.shape == wanted.shape and got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def counting_compiler(folder: Path, compiler: str = "g++", sleep: float = 0.0) -> tuple[str, Path]:
    """A compiler that writes one line a compilation into a file, its pid and what it makes: (its path, that file).

    Probes and precompiled headers are not counted. It sleeps before it begins.
    """
    script, count = folder / "counting-cxx", folder / "compilations"
    count.touch()
    script.write_text(
        "#!/bin/sh\n"
        'last=""; made=""\n'
        'for a in "$@"; do [ "$last" = -o ] && made="$a"; last="$a"; done\n'
        f'for a in "$@"; do [ "$a" = - ] && {{ echo "$$ $(basename "$made")" >> {count}; sleep {sleep}; }}; done\n'
        f'exec {compiler} "$@"\n'
    )
    os.chmod(script, script.stat().st_mode | stat.S_IXUSR)
    return str(script), count


def compilations(count: Path) -> int:
    return len(count.read_text().splitlines())
