"""Ops to save, each with cells as a user types them. Their references stand in this file, whose text goes along."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import workbench as wb

LOW = 1e-8


def scale_reference(x: Tensor, k: float = 2.0) -> Tensor:
    """Every element times k."""
    return x * k


def scale_cases(t):
    yield t(4, 8)
    yield wb.case("odd", t(5, 3), 0.5)


SCALE = """//! n = x.numel()
//! tune WIDTH = 4, 8
//! out = empty_like(x)
// Four at a time
#include <cmath>
template <typename T> static T times(T v, double k) { return T(v * k); }
template <typename T> void scale(const T* x, T* out, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = times(x[i], k);
}
"""
# Another op with a helper of the same name and type, which does something else.
SHIFT = """//! n = x.numel()
//! out = empty_like(x)
template <typename T> inline T times(T v, double k) { return T(v + k); }
template <typename T> void shift(const T* x, T* out, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = times(x[i], k);
}
"""


def shift_reference(x: Tensor, k: float = 2.0) -> Tensor:
    return x + k


def normed_reference(x: Tensor, eps: float = LOW) -> Tensor:
    """Rows of length one."""
    return x / (x.pow(2).sum(-1, keepdim=True) + eps).sqrt()


NORMED = """//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require cols > 0
//! out = empty(x.shape)
//! length = empty(rows, dtype=float64)
#include <cmath>
template <typename T> void normed(const T* x, T* out, double* length, double eps, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    double s = eps;
    for (int64_t c = 0; c < cols; ++c) s += double(x[r * cols + c]) * x[r * cols + c];
    length[r] = std::sqrt(s);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = T(x[r * cols + c] / length[r]);
  }
}
"""
NORMED_BACKWARD = """//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! grad_x = empty(x.shape)
template <typename T> void backward(const T* grad_out, const T* out, const double* length, T* grad_x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    double dot = 0;
    for (int64_t c = 0; c < cols; ++c) dot += double(grad_out[r * cols + c]) * out[r * cols + c];
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      grad_x[i] = T((grad_out[i] - dot * out[i]) / length[r]);
    }
  }
}
"""


SAXPY = """template <typename T> __global__ void saxpy_kernel(const T* x, const T* y, T* out, float a, int64_t n) {
  int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = T(a * float(x[i]) + float(y[i]));
}
Tensor saxpy(const Tensor& x, const Tensor& y, float a) {
  STD_TORCH_CHECK(x.numel() == y.numel(), "sizes differ: ", x.numel(), " and ", y.numel());
  Tensor out = torch::stable::empty_like(x);
  const int64_t n = x.numel();
  if (n) saxpy_kernel<<<(n + 255) / 256, 256, 0, wb::current_stream()>>>(x.const_data_ptr<float>(), y.const_data_ptr<float>(), out.mutable_data_ptr<float>(), a, n);
  return out;
}
"""
# A kernel with the name of a function of CUDA's, more shared memory than a block has without asking, a tuned block.
SHIFTED = """//! n = x.numel()
//! out = empty_like(x)
//! tune BLOCK = 256, 128
//! grid = max(1, cdiv(n, BLOCK))
//! block = BLOCK
//! shared = 60000
__global__ void exp(const float* x, float* out, float k, long long n) {
  extern __shared__ float kept[];
  long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  if (i < n) kept[threadIdx.x] = x[i] + k, out[i] = kept[threadIdx.x];
}
"""
# Instructions that only sm_90a has, of the GPUs of its number.
SETS_REGISTERS = """//! n = x.numel()
//! out = empty_like(x)
//! grid = max(1, cdiv(n, 128))
//! block = 128
__global__ void registers(const float* x, float* out, float k, long long n) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  long long i = blockIdx.x * 128ll + threadIdx.x;
  if (i < n) out[i] = x[i] * k;
}
"""
# 20 KB of a kernel's own arrays and 40 KB on top: together more than a block has without asking, each by itself less.
STAGED = """//! n = x.numel()
//! out = empty_like(x)
//! grid = max(1, cdiv(n, 128))
//! block = 128
//! shared = 40960
__global__ void staged(const float* x, float* out, float k, long long n) {
  __shared__ float own[5120];
  extern __shared__ float kept[];
  long long i = blockIdx.x * 128ll + threadIdx.x;
  if (i < n) own[threadIdx.x] = x[i], kept[threadIdx.x] = own[threadIdx.x] * k, out[i] = kept[threadIdx.x];
}
"""


def saxpy_reference(x: Tensor, y: Tensor, a: float = 2.0) -> Tensor:
    return a * x + y


def saxpy(namespace: str) -> wb.Op:
    """A function on Tensor that launches its kernel."""
    op = wb.op(f"{namespace}::saxpy")(saxpy_reference)
    op.cases(saxpy_cases)
    wb.cuda(op, SAXPY)
    return op


def saxpy_cases(t):
    yield t(4, 128), t(4, 128)
    yield wb.case("odd", t(5, 123), t(5, 123), 0.5)


def shifted(namespace: str) -> wb.Op:
    op = wb.op(f"{namespace}::shifted")(shift_reference)
    op.cases(scale_cases)
    wb.cuda(op, SHIFTED)
    return op


def on_gpu(namespace: str, name: str, text: str) -> wb.Op:
    """An op that scales, with this CUDA cell."""
    op = wb.op(f"{namespace}::{name}")(scale_reference)
    op.cases(scale_cases)
    wb.cuda(op, text)
    return op


def define(namespace: str, name: str, reference: Callable, cases: Callable = scale_cases, **options) -> wb.Op:
    """An op of that reference with these cases; no kernel yet."""
    function = reference
    op = wb.op(f"{namespace}::{name}", **options)(function)
    op.cases(cases, dtypes=(torch.float32, torch.float64))
    return op


def scale(namespace: str) -> wb.Op:
    op = define(namespace, "scale", scale_reference)
    wb.cpp(op, SCALE)
    return op


def shift(namespace: str) -> wb.Op:
    op = define(namespace, "shift", shift_reference)
    wb.cpp(op, SHIFT)
    return op


def normed(namespace: str) -> wb.Op:
    op = define(namespace, "normed", normed_reference, saves="length")
    wb.cpp(op, NORMED)
    wb.cpp(f"{namespace}::normed.backward", NORMED_BACKWARD)
    return op
