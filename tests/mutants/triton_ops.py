"""Correct ops in Triton to make mutants of; where no GPU is, the interpreter runs them."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.mutants.ops import Correct


def swiglu(x: Tensor, gate: Tensor) -> Tensor:
    return x * torch.nn.functional.silu(gate)


SWIGLU = """\
@triton.jit
def kernel(x, gate, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=0).to(tl.float32)
    g = tl.load(gate + i, mask=i < n, other=0).to(tl.float32)
    tl.store(out + i, a * g * tl.sigmoid(g), mask=i < n)

def swiglu(x, gate):
    assert x.shape == gate.shape and x.dtype == gate.dtype
    x, gate = x.contiguous(), gate.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        kernel[(triton.cdiv(out.numel(), 128),)](x, gate, out, out.numel(), BLOCK=128)
    return out
"""


def rms(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


RMS = """\
@triton.jit
def kernel(x, w, y, rstd, eps, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0)
    scale = 1 / tl.sqrt(tl.sum(v * v, 0) / cols + eps)
    tl.store(rstd + row, scale)
    tl.store(y + row * cols + c, v * scale * tl.load(w + c, mask=c < cols, other=0), mask=c < cols)

def rms(x, w, eps=1e-6):
    assert w.shape == x.shape[-1:] and w.dtype == x.dtype == torch.float32
    x, w = x.contiguous(), w.contiguous()
    y, rstd = torch.empty_like(x), torch.empty(x.shape[:-1], device=x.device)
    if y.numel():
        kernel[(rstd.numel(),)](x, w, y, rstd, eps, x.size(-1), BLOCK=triton.next_power_of_2(x.size(-1)))
    return y, rstd

@triton.jit
def backward_kernel(g, x, w, rstd, grad_x, grad_w, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0)
    incoming = tl.load(g + row * cols + c, mask=c < cols, other=0)
    scale = tl.load(rstd + row)
    weighted = incoming * tl.load(w + c, mask=c < cols, other=0)
    dot = tl.sum(weighted * v, 0) * scale * scale * scale / cols
    tl.store(grad_x + row * cols + c, weighted * scale - dot * v, mask=c < cols)
    tl.atomic_add(grad_w + c, incoming * v * scale, mask=c < cols)

def backward(grad_y, x, w, rstd):
    grad_y, x, w = grad_y.contiguous(), x.contiguous(), w.contiguous()
    grad_x, grad_w = torch.empty_like(x), torch.zeros_like(w)
    if x.numel():
        backward_kernel[(rstd.numel(),)](
            grad_y, x, w, rstd, grad_x, grad_w, x.size(-1), BLOCK=triton.next_power_of_2(x.size(-1))
        )
    return grad_x, grad_w
"""


def sums(x: Tensor) -> Tensor:
    return x.cumsum(-1)


SUMS = """\
@triton.jit
def kernel(x, out, cols, BLOCK: tl.constexpr):
    row, carry = tl.program_id(0), tl.zeros((), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=0)
        tl.store(out + row * cols + c, carry + tl.cumsum(v, 0), mask=c < cols)
        carry += tl.sum(v, 0)

def sums(x):
    assert x.dtype == torch.float32
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        cols = x.size(-1) if x.dim() else 1
        kernel[(out.numel() // cols,)](x, out, cols, BLOCK=64)
    return out
"""


def soft(x: Tensor) -> Tensor:
    return x.softmax(-1)


SOFT = """\
@triton.jit
def kernel(x, out, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * cols + c, e / tl.sum(e, 0), mask=c < cols)

def soft(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        cols = x.size(-1) if x.dim() else 1
        kernel[(out.numel() // cols,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out
"""


def peak(x: Tensor) -> Tensor:
    return x.amax(-1)


PEAK = """\
@triton.jit
def kernel(x, out, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))
    most = tl.max(tl.where(v == v, v, -float("inf")), 0)
    lost = tl.sum((v != v).to(tl.int32), 0)
    tl.store(out + row, tl.where(lost > 0, float("nan"), most))

def peak(x):
    assert x.dim() and x.size(-1)
    x = x.contiguous()
    out = x.new_empty(x.shape[:-1])
    if out.numel():
        kernel[(out.numel(),)](x, out, x.size(-1), BLOCK=triton.next_power_of_2(x.size(-1)))
    return out
"""


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


PRODUCT = """\
@triton.jit
def kernel(a, b, out, M, N, K, am, ak, bk, bn, T: tl.constexpr):
    m, n = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T)
    sums = tl.zeros((T, T), tl.float32)
    for start in range(0, K, T):
        k = start + tl.arange(0, T)
        left = tl.load(a + m[:, None] * am + k[None, :] * ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        right = tl.load(b + k[:, None] * bk + n[None, :] * bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        sums += tl.dot(left, right, input_precision="ieee")
    tl.store(out + m[:, None] * N + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))

def product(a, b):
    assert a.dim() == b.dim() == 2 and a.size(1) == b.size(0) and a.dtype == b.dtype
    M, K = a.shape
    N = b.size(1)
    out = a.new_empty(M, N)
    if out.numel():
        kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, out, M, N, K, *a.stride(), *b.stride(), T=16)
    return out
"""


def colsum(x: Tensor) -> Tensor:
    return x.sum(0)


COLSUM = """\
@triton.jit
def kernel(x, out, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLS + tl.arange(0, COLS)
    v = tl.load(x + r[:, None] * cols + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols), other=0)
    tl.atomic_add(out + c, tl.sum(v, 0), mask=c < cols)

def colsum(x):
    assert x.dim() == 2 and x.dtype == torch.float32
    x = x.contiguous()
    rows, cols = x.shape
    out = x.new_zeros(cols)
    if x.numel():
        kernel[(triton.cdiv(rows, 8), triton.cdiv(cols, 32))](x, out, rows, cols, ROWS=8, COLS=32)
    return out
"""


def blend_(x: Tensor, y: Tensor, a: float = 0.25, keep: bool = False) -> None:
    x.copy_(x + a * y if keep else (1 - a) * x + a * y)


BLEND = """\
@triton.jit
def kernel(x, y, a, n, KEEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.load(x + i, mask=i < n, other=0)
    new = tl.load(y + i, mask=i < n, other=0)
    tl.store(x + i, (old if KEEP else (1 - a) * old) + a * new, mask=i < n)

def blend_(x, y, a=0.25, keep=False):
    assert x.shape == y.shape and x.dtype == y.dtype == torch.float32
    assert x.is_contiguous(), "x is written in place and not contiguous"
    y = y.contiguous()
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, a, x.numel(), KEEP=keep, BLOCK=64)
"""


def right(reference, cases, text: str, *dtypes: torch.dtype, **options: object) -> Correct:
    return Correct(reference, cases, {"forward": text}, options, (torch.float32, *dtypes), "triton")


TRITON_OPS = {
    "swiglu": right(swiglu, lambda t: [(t(4, 128), t(4, 128))], SWIGLU, torch.bfloat16),
    "rms": right(rms, lambda t: [(t(4, 64), t(64))], RMS, returns="y", saves="rstd"),
    "sums": right(sums, lambda t: [t(3, 10)], SUMS),
    "soft": right(soft, lambda t: [t(4, 64)], SOFT),
    "peak": right(peak, lambda t: [t(4, 64)], PEAK),
    "product": right(product, lambda t: [(t(16, 16), t(16, 16))], PRODUCT, torch.bfloat16),
    "colsum": right(colsum, lambda t: [t(8, 32)], COLSUM),
    "blend_": right(blend_, lambda t: [(t(2, 64), t(2, 64))], BLEND, mutates="x"),
}
