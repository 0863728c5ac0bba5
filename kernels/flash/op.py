"""Attention over whole sequences, in memory linear in their length: FlashAttention-2 (Dao, 2023)."""

import torch
from torch import Tensor

import workbench as wb


@wb.op("lab::flash", returns=("out", "lse"))
def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> tuple[Tensor, Tensor]:
    """softmax(q k' scale) v, and the logarithm of the softmax's sums; q, k, v are (..., length, head size)."""
    s = (q @ k.mT).float() * (scale or q.size(-1) ** -0.5)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -float("inf"))
    return s.softmax(-1).to(v.dtype) @ v, s.logsumexp(-1).detach()  # detached: lse takes no gradient


@flash.cases(dtypes=(torch.float32, torch.float16))
def _(t):
    yield t(1, 2, 100, 32), t(1, 2, 100, 32), t(1, 2, 100, 32)
    yield wb.case("causal", t(1, 2, 100, 32), t(1, 2, 100, 32), t(1, 2, 100, 32), causal=True)
    yield wb.case("more keys", t(2, 17, 20), t(2, 50, 20), t(2, 50, 20), scale=0.3)
    q, k, v = (t(4, 16, 4096, 128, dtype=torch.float16) for _ in range(3))
    yield wb.case("4k", q, k, v, causal=True, bench=True)
