"""Triton kernels behind ops of the namespace `ongpu`, whose launchers allocate by themselves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, masked: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n if masked else at < n + 1
    tl.store(out + at, 2 * tl.load(x + at, at < n, 0), inside)


def twice(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), True, BLOCK=256)
    return out


def half(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel() // 2, 256),)](x, out, x.numel() // 2, True, BLOCK=256)
    return out


def one_more(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel() + 1, 256),)](x, out, x.numel(), False, BLOCK=256)
    return out


def workspace(x):
    """The mistake is in a tensor that is not returned, made by an op that fills it."""
    work = torch.zeros(x.numel(), device=x.device)
    double[(triton.cdiv(x.numel() + 1, 256),)](x, work, x.numel(), False, BLOCK=256)
    return work * 1


@dataclass(frozen=True)
class OnGpu:
    names: tuple[str, ...]

    def load(self, allocate):
        library = torch.library.Library("ongpu", "FRAGMENT")
        for name in self.names:
            library.impl(name, globals()[name], "CUDA")
        return library
