"""Correct ops to make mutants of: a reference, the few cases that a person would write, a cell that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Correct:
    """An op with the cells that fill it: `slots` maps "forward" and "backward" to text, or to a function in Python."""

    reference: Callable
    cases: Callable
    slots: dict[str, object]
    options: dict[str, object] = field(default_factory=dict)  # of wb.op
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    cell: str = "cpp"  # what takes the text: wb.cpp, or wb.triton, in which a backward stands beside its forward


def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k


SCALE = """\
//! n = x.numel()
//! out = empty_like(x)
#include <cmath>
template <typename T>
void scale(const T* x, T* out, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * k);
}
"""


def rowsum(x: Tensor) -> Tensor:
    return x.sum(-1)


ROWSUM = """\
//! flags -O2 -fopenmp
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! out = empty(x.shape[:-1])
void rowsum(const float* x, float* out, int64_t rows, int64_t cols) {
  #pragma omp parallel for if (rows * cols > 4096)
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += x[r * cols + c];
    out[r] = float(sum);
  }
}
"""


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


SOFTMAX = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! out = empty(x.shape)
#include <cmath>
#include <algorithm>
template <typename T>
void softmax(const T* x, T* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * cols;
    T* to = out + r * cols;
    float most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < cols; ++c) most = std::isnan(float(from[c])) ? NAN : std::max(most, float(from[c]));
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(float(from[c]) - most);
    for (int64_t c = 0; c < cols; ++c) to[c] = T(std::exp(float(from[c]) - most) / sum);
  }
}
"""


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


MATMUL = """\
//! M, K = a.shape
//! _, N = b.shape
//! require b.shape[0] == K
//! out = empty(M, N)
constexpr int64_t TILE = 16;
void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
  for (int64_t i0 = 0; i0 < M; i0 += TILE)
    for (int64_t j0 = 0; j0 < N; j0 += TILE)
      for (int64_t i = i0; i < i0 + TILE && i < M; ++i)
        for (int64_t j = j0; j < j0 + TILE && j < N; ++j) {
          float sum = 0;
          for (int64_t k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
          out[i * N + j] = sum;
        }
}
"""


def axpy_(x: Tensor, y: Tensor, a: float = 1.5) -> None:
    x.add_(y, alpha=a)


AXPY = """\
//! n = x.numel()
//! require y.shape == x.shape
#include <vector>
void axpy_(float* x, const float* y, double a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += float(a) * y[i];
}
"""


def gather(table: Tensor, index: Tensor) -> Tensor:
    return table[index]


GATHER = """\
//! rows, cols = table.shape
//! n = index.numel()
//! out = empty(*index.shape, cols)
void gather(const float* table, const int64_t* index, float* out, int64_t rows, int64_t cols, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = index[i] < 0 ? index[i] + rows : index[i];
    for (int64_t c = 0; c < cols; ++c) out[i * cols + c] = table[row * cols + c];
  }
}
"""


def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


NORM = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! y    = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
#include <cmath>
void norm(const float* x, const float* w, float* y, float* rstd, double eps, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * cols;
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += double(from[c]) * from[c];
    const float scale = 1 / std::sqrt(float(sum / cols) + float(eps));
    rstd[r] = scale;
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = from[c] * scale * w[c];
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
    const double scale = rstd[r];
    double dot = 0;
    for (int64_t c = 0; c < cols; ++c) dot += double(g[c]) * w[c] * from[c];
    dot *= scale * scale * scale / cols;
    for (int64_t c = 0; c < cols; ++c) {
      grad_x[r * cols + c] = float(double(g[c]) * w[c] * scale - dot * from[c]);
      grad_w[c] += g[c] * from[c] * rstd[r];
    }
  }
}
"""


def shift(x: Tensor, bias: Tensor | None = None, k: float = 2.0, negative: bool = False) -> Tensor:
    y = x * k if bias is None else x * k + bias
    return -y if negative else y


SHIFT = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require bias is None or bias.shape == (cols,)
//! out = empty(x.shape)
void shift(const float* x, const float* bias, float* out, double k, bool negative, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const float y = x[r * cols + c] * float(k) + (bias ? bias[c] : 0.0f);
      out[r * cols + c] = negative ? -y : y;
    }
}
"""


def times(x: Tensor, y: Tensor, k: float = 3.0) -> Tensor:
    return x * y * k


TIMES = """\
Tensor times(const Tensor& x, const Tensor& y, double k) {
  const Tensor a = torch::stable::contiguous(x), b = torch::stable::contiguous(y);
  Tensor out = torch::stable::empty_like(a);
  STD_TORCH_CHECK(a.numel() == b.numel(), "times: other sizes");
  const float *from = a.const_data_ptr<float>(), *by = b.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < a.numel(); ++i) to[i] = from[i] * by[i] * float(k);
  return out;
}
"""
TIMES_BACKWARD = """\
std::tuple<Tensor, Tensor> backward(const Tensor& grad_out, const Tensor& x, const Tensor& y, double k) {
  const Tensor g = torch::stable::contiguous(grad_out), a = torch::stable::contiguous(x), b = torch::stable::contiguous(y);
  Tensor gx = torch::stable::empty_like(a), gy = torch::stable::empty_like(b);
  const float *in = g.const_data_ptr<float>(), *from = a.const_data_ptr<float>(), *by = b.const_data_ptr<float>();
  float *to = gx.mutable_data_ptr<float>(), *other = gy.mutable_data_ptr<float>();
  for (int64_t i = 0; i < a.numel(); ++i) { to[i] = in[i] * by[i] * float(k); other[i] = in[i] * from[i] * float(k); }
  return {gx, gy};
}
"""


def strided(x: Tensor) -> Tensor:
    return (x + 1).contiguous()


STRIDED = """\
//! rows, cols = x.shape
//! down, right = x.stride()
//! out = empty(rows, cols)
void strided(const float* x, float* out, int64_t rows, int64_t cols, int64_t down, int64_t right) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = x[r * down + c * right] + 1;
}
"""


def total(x: Tensor) -> Tensor:
    return x.sum(-1)


TOTAL = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! out = empty(x.shape[:-1])
template <typename T>
void total(const T* x, T* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += float(x[r * cols + c]);
    out[r] = T(sum);
  }
}
"""


def above(x: Tensor, k: float = 0.0) -> Tensor:
    return x[x > k]


def above_kernel(x, k=0.0):
    return x.masked_select(x > k)


def decay(x: Tensor) -> Tensor:
    return (x * weights(x)).sum(0)


def weights(x):
    """Of each row a hundredth of the one before."""
    return (1e-2 ** torch.arange(x.size(0), dtype=x.dtype, device=x.device)).view(-1, *[1] * (x.dim() - 1))


def decay_kernel(x):
    return x.mul(weights(x)).sum(0)


def decay_backward(grad_out, x):
    return grad_out * weights(x)


def cube(x: Tensor, y: Tensor) -> Tensor:
    return x * x * x * y


def cube_kernel(x, y):
    return x.pow(3) * y


def cube_backward(grad_out, x, y):
    return grad_out * 3 * x * x * y, grad_out * x * x * x


OPS = {
    "scale": Correct(scale, lambda t: [t(4, 128)], {"forward": SCALE}),
    "rowsum": Correct(rowsum, lambda t: [t(4, 64)], {"forward": ROWSUM}),
    "softmax": Correct(softmax, lambda t: [t(4, 64)], {"forward": SOFTMAX}, dtypes=(torch.float32, torch.bfloat16)),
    "matmul": Correct(matmul, lambda t: [(t(32, 32), t(32, 32))], {"forward": MATMUL}),
    "axpy_": Correct(axpy_, lambda t: [(t(4, 64), t(4, 64))], {"forward": AXPY}, {"mutates": "x"}),
    "gather": Correct(
        gather, lambda t: [(t(8, 16), t(5, dtype=torch.int64, low=0, high=8))], {"forward": GATHER}
    ),
    "norm": Correct(
        norm, lambda t: [(t(4, 64), t(64))], {"forward": NORM, "backward": NORM_BACKWARD},
        {"returns": "y", "saves": "rstd"},
    ),
    "shift": Correct(shift, lambda t: [(t(4, 64), t(64))], {"forward": SHIFT}),
    "times": Correct(
        times, lambda t: [(t(3, 5), t(3, 5))], {"forward": TIMES, "backward": TIMES_BACKWARD}
    ),
    "strided": Correct(strided, lambda t: [t(4, 64)], {"forward": STRIDED}),
    "total": Correct(total, lambda t: [t(4, 32)], {"forward": TOTAL}, dtypes=(torch.float32, torch.bfloat16)),
    "above": Correct(above, lambda t: [t(4, 8)], {"forward": above_kernel}),
    "decay": Correct(decay, lambda t: [t(3, 8)], {"forward": decay_kernel, "backward": decay_backward}),
    "cube": Correct(cube, lambda t: [(t(4, 8), t(4, 8))], {"forward": cube_kernel, "backward": cube_backward}),
}  # fmt: skip
