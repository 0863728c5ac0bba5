"""What a call costs on a GPU, and how near to the copy bandwidth rmsnorm comes, in CUDA and in Triton.

    python -m benchmarks.gpu_speed

Needs a CUDA GPU. Calls take 1024 floats and alternate, round after round; ratios are taken within a round. Bandwidth
is bytes that must move (x read, y written) over device time between events, beside `Tensor.copy_` of as many bytes.
"""

from __future__ import annotations

import os
import statistics
import sys
import timeit
from collections.abc import Callable

import torch
from torch import Tensor

import workbench as wb
from benchmarks.common import ROOT, Figure, interleaved, ratio, table, write
from benchmarks.gpu_latency import _plain_module

ELEMENTS, SIDE, IN_A_ROW = 1024, 8192, 20
MUL = """\
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void {name}(const float* x, const float* y, float* out, long long n) {{
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = x[i] * y[i];
}}
"""
MUL_TRITON = """\
@triton.jit
def mul_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * tl.load(y + i, mask=i < n), mask=i < n)


def {name}(x, y):
    out = torch.empty_like(x)
    mul_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""


def mul_op(name: str) -> wb.Op:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    reference.__name__ = name
    op = wb.op(f"bench::{name}")(reference)

    @op.cases
    def _(t):
        yield t(4, 128), t(4, 128)
        yield t(5, 123), t(5, 123)

    return op


def calls() -> dict[str, list[float]]:
    """Seconds a call, in turn; the queue of launches is emptied between samples."""
    raw, triton = mul_op("mul_raw"), mul_op("mul_triton")
    wb.cuda(raw, MUL.format(name="mul_raw"))
    wb.triton(triton, MUL_TRITON.format(name="mul_triton"))
    bare = _plain_module(MUL_TRITON.format(name="leaky"))
    x, y = (torch.randn(ELEMENTS, device="cuda") for _ in range(2))
    mul = torch.library.custom_op(
        "bench::mul_custom", lambda x, y: x * y, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor"
    )
    found: dict[str, Callable] = {
        "torch.mul": torch.mul,
        "raw": raw,
        "raw, torch.ops": torch.ops.bench.mul_raw.default,
        "triton": triton,
        "bare triton": bare,
        "custom_op": mul,
    }
    for f in found.values():
        torch.testing.assert_close(f(x, y), x * y)
    with torch.no_grad():
        timers = {n: timeit.Timer(lambda f=f: f(x, y)) for n, f in found.items()}
        torch.cuda.synchronize()
        return interleaved(timers, rounds=21, number=1000)


def milliseconds(call: Callable[[], object], rounds: int = 25) -> float:
    """The median device time of one call: of calls in a row, so that the device, not the launch, sets the pace."""
    for _ in range(3):
        call()
    spent = []
    for _ in range(rounds):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        for _ in range(IN_A_ROW):
            call()
        after.record()
        after.synchronize()
        spent.append(before.elapsed_time(after) / IN_A_ROW)
    return statistics.median(spent)


def bandwidth() -> dict[str, float]:
    """GB/s of `copy_` and of rmsnorm's forward on 8192 x 8192 bfloat16."""
    x = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(SIDE, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    moved = 2 * x.numel() * x.element_size() / 1e6  # MB, so that MB / ms is GB/s
    found = {"copy": moved / milliseconds(lambda: y.copy_(x))}
    folder = ROOT / "kernels" / "rmsnorm"
    [op] = wb.load(folder / "op.py")
    for language, file in (("cuda", "rmsnorm.cu"), ("triton", "rmsnorm_triton.py")):
        wb.load(folder / file)
        with torch.no_grad():
            found[language] = moved / milliseconds(lambda: op(x, w))
    found["copy again"] = moved / milliseconds(lambda: y.copy_(x))
    return found


def main() -> int:
    seconds, rates = calls(), bandwidth()
    us = {n: statistics.median(s) * 1e6 for n, s in seconds.items()}
    copy = max(rates["copy"], rates["copy again"])
    rows = [
        Figure("torch.mul", us["torch.mul"], "us"),
        Figure("raw CUDA op, op(...)", ratio(seconds, "raw", "torch.mul"), "x", 1.25, note=f"{us['raw']:.1f} us"),
        Figure(
            "raw CUDA op, torch.ops",
            ratio(seconds, "raw, torch.ops", "torch.mul"),
            "x",
            note=f"{us['raw, torch.ops']:.1f} us",
        ),
        Figure(
            "custom_op around torch.mul",
            ratio(seconds, "custom_op", "torch.mul"),
            "x",
            note=f"{us['custom_op']:.1f} us",
        ),
        Figure("bare Triton launch", us["bare triton"], "us"),
        Figure(
            "Triton op, times the bare launch",
            ratio(seconds, "triton", "bare triton"),
            "x",
            1.15,
            note=f"{us['triton']:.1f} us",
        ),
        Figure("copy, 8192 x 8192 bfloat16", copy, "GB/s"),
        Figure(
            "rmsnorm in CUDA, share of copy",
            100 * rates["cuda"] / copy,
            "%",
            85,
            at_least=True,
            note=f"{rates['cuda']:.0f} GB/s",
        ),
        Figure(
            "rmsnorm in Triton, share of copy",
            100 * rates["triton"] / copy,
            "%",
            85,
            at_least=True,
            note=f"{rates['triton']:.0f} GB/s",
        ),
    ]
    print(table("Calls on 1024 floats, and rmsnorm forward", rows))
    print(f"\nwritten to {os.path.relpath(write('gpu_speed', rows, {'seconds': seconds, 'gb_per_s': rates}))}")
    return 0 if all(f.holds for f in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
