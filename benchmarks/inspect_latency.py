"""How long one waits for `op.inspect()` where there is no GPU, and nothing of it is in the store.

    python -m benchmarks.inspect_latency

Each sample is a text that was never compiled before, in a process that has inspected one already, as a notebook has.
What nvdisasm takes by itself for the same kernel is measured beside it: most of that is its own start.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import common
from benchmarks.common import Figure

MODULE = "benchmarks.inspect_latency"
WANTED_S = 0.3
CUDA = """//! *_, cols = x.shape
//! require w.shape == (cols,)
//! tune BLOCK = 256, 128, 512
//! out = empty(x.shape)
//! grid = prod(x.shape[:-1])
//! block = BLOCK
template <typename T, typename W, int BLOCK>
__global__ void norm(const T* x, const W* w, T* out, float eps, int cols) {
  __shared__ float part[BLOCK / 32];
  x += (long long)blockIdx.x * cols; out += (long long)blockIdx.x * cols;
  float s = EDITe-30f;
  for (int c = threadIdx.x; c < cols; c += BLOCK) s += float(x[c]) * float(x[c]);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0;
  for (int k = 0; k < BLOCK / 32; ++k) s += part[k];
  float r = rsqrtf(s / cols + eps);
  for (int c = threadIdx.x; c < cols; c += BLOCK) out[c] = T(float(x[c]) * r * float(w[c]));
}
"""
CPP = """//! n = x.numel()
//! out = empty_like(x)
//! flags -O3
void times(const float* x, float* out, int64_t n) {
  const float edit = EDITe-30f;
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * 2 + edit;
}
"""
TRITON = """
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + EDITe-30, mask=i < n)
def times(x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""


def measure(count: int) -> dict[str, list[float]]:
    """Seconds of each inspection, and of nvdisasm alone."""
    import torch

    import workbench as wb
    from workbench.inspect import tools

    def norm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    def times(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    norm_op, times_op = wb.op("measured::norm")(norm), wb.op("measured::times")(times)
    norm_op.cases(lambda t: iter([(t(4, 128), t(128))]))
    times_op.cases(lambda t: iter([(t(128),)]))
    cells = (
        ("raw CUDA", wb.cuda, norm_op, CUDA),
        ("raw C++", wb.cpp, times_op, CPP),
        ("Triton", wb.triton, times_op, TRITON),
    )
    found: dict[str, list[float]] = {}
    for i in range(count + 1):
        for name, build, op, text in cells:
            build(op, text.replace("EDIT", str(i + 1)))
            report, again = _timed(lambda op=op: op.inspect(-1)), _timed(lambda op=op: op.inspect(-1))
            found.setdefault(name, []).append(report)
            found.setdefault(f"{name}, once more", []).append(again)
        cubin = norm_op.versions[-1].kernel.launch().instances[0].library
        command = [tools.find("nvdisasm"), "-c", "-gi", "-ndf", cubin]
        found.setdefault("nvdisasm", []).append(
            _timed(lambda command=command: subprocess.run(command, check=True, capture_output=True))
        )
    return {name: samples[1:] for name, samples in found.items()}


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description="How long op.inspect() takes, with no GPU.")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=9, help="samples of each (default 9)")
    parser.add_argument("--quick", action="store_true", help="three samples of each")
    asked = parser.parse_args()
    if asked.part:
        common.hand_back(measure(asked.count))
        return 0
    with common.empty_cache() as environment:
        samples = common.child(MODULE, "measure", "--count", 3 if asked.quick else asked.count, environment=environment)
    figures = [common.timed(f"inspect {name}", s, WANTED_S if name == "raw CUDA" else None)
               for name, s in samples.items() if name != "nvdisasm"]  # fmt: skip
    figures.append(Figure("nvdisasm alone", common.spread(samples["nvdisasm"])["median"], "s"))
    print(common.table("op.inspect(), nothing of it in the store, no GPU", figures))
    print(f"\nwritten to {os.path.relpath(common.write('inspect_latency', figures, samples))}")
    return 0 if all(f.holds for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
