"""Can `op.bench()` be believed? An op against itself, slowdowns that were planted, device times beside CUPTI's.

    python -m benchmarks.bench_trust [--gpu] [--runs 50] [--planted 20]

On the CPU: 50 runs of an op against itself, which is SAME, and 20 against a version that does 10 % more work. With
`--gpu`: the same on the GPU with 3 % more work, and the time of a kernel of about 5 us and of one of about 2 ms beside
what CUPTI, through torch's profiler, says of the same launches. Other work on the machine makes it harder, not void:
the verdict is then UNCLEAR, and counted as neither.
"""

from __future__ import annotations

import argparse
import collections
import os
import statistics

import torch
from torch import Tensor

import workbench as wb
from benchmarks.common import Figure, say, table, write

BUDGET_S = 6.0
# How often the loop runs is data, so that both versions are the same code; the result does not depend on it.
CPP = """\
//! n = x.numel()
//! turns = {turns}
//! out = empty(x.shape)
void {name}(const float* x, float* out, int64_t n, int64_t turns) {{
  for (int64_t i = 0; i < n; ++i) {{
    float v = x[i];
    for (int64_t j = 0; j < turns; ++j) asm volatile("" : "+x"(v));
    out[i] = v * 2;
  }}
}}
"""
CUDA = """\
//! n = x.numel()
//! turns = {turns}
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void {name}(const float* x, float* out, long long n, int turns) {{
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (int j = 0; j < turns; ++j) asm volatile("add.f32 %0, %0, 0f00000000;" : "+f"(v));
  out[i] = v * 2;
}}
"""
SIZES = {"cpu": 1 << 11, "cuda": 1 << 22}
TURNS = {"cpu": (2000, 2200), "cuda": (1000, 1030)}
KERNELS = {"5 us": (1 << 20, 0), "2 ms": (1 << 22, 16_000)}  # floats that are read and written, and turns of the loop


def working_op(device: str, name: str) -> wb.Op:
    """An op whose version 1 does more work than version 2, which runs."""

    def reference(x: Tensor) -> Tensor:
        return x * 2

    reference.__name__ = name
    op = wb.op(f"trust::{name}")(reference)

    @op.cases
    def _(t):
        yield t(4, 128)
        yield wb.case("work", t(SIZES[device]), bench=True)

    few, many = TURNS[device]
    build, text = (wb.cuda, CUDA) if device == "cuda" else (wb.cpp, CPP)
    for turns in (many, few):
        build(op, text.format(name=name, turns=turns))
    return op


def against(op: wb.Op, device: str, rival: object, count: int) -> dict:
    """The verdicts of so many runs, with ratios and samples."""
    rows = []
    for i in range(count):
        report = op.bench(against=rival, device=device, budget=BUDGET_S)
        rows.append(report.rows[1])
        r = rows[-1]
        say(f"{i + 1} of {count}: {r.verdict} {r.ratio:.3f}, {r.samples} samples, {report.seconds:.1f} s")
    return {
        "verdicts": dict(collections.Counter(r.verdict for r in rows)),
        "ratio": [round(r.ratio, 4) for r in rows],
        "low": [round(r.ratio_low, 4) for r in rows],
        "high": [round(r.ratio_high, 4) for r in rows],
        "samples": [r.samples for r in rows],
        "load": round(os.getloadavg()[0], 1),
    }


def beside_cupti() -> dict[str, dict[str, float]]:
    """Microseconds of two kernels by `op.bench()` and by CUPTI, the L2 cache emptied before each call in both."""
    from workbench.measure import cupti
    from workbench.measure.device import Cuda

    found = {}
    device = Cuda()
    for i, (name, (count, turns)) in enumerate(KERNELS.items()):

        def reference(x: Tensor) -> Tensor:
            return x * 2

        reference.__name__ = f"twice{i}"
        op = wb.op(f"trust::twice{i}")(reference)

        @op.cases
        def _(t, count=count):
            yield wb.case("all", t(count), bench=True)
            yield t(4, 128)

        wb.cuda(op, CUDA.format(name=f"twice{i}", turns=turns))
        bench = op.bench(against=[], device="cuda", budget=BUDGET_S).rows[0]
        x = torch.ones(count, device="cuda")

        def both(x=x, op=op):
            for _ in range(100):
                device.flush()
                op(x)

        both()
        torch.cuda.synchronize()
        kernels = [us for kernel, us in cupti.durations_us(both) if f"twice{i}" in kernel]
        found[name] = {"bench_us": bench.time_us, "cupti_us": statistics.median(kernels), "samples": len(kernels)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--planted", type=int, default=20)
    asked = parser.parse_args()
    device = "cuda" if asked.gpu else "cpu"
    op = working_op(device, f"work_{device}")
    same = against(op, device, op, asked.runs)
    slow = against(op, device, 1, asked.planted)  # version 1 does more: the op is FASTER
    few, many = TURNS[device]
    extra = f"{100 * (many / few - 1):.0f} %"
    verdicts = same["verdicts"]
    same_ = verdicts.get("SAME", 0)
    told = ", ".join(f"{n} {v}" for v, n in verdicts.items())
    both = min(verdicts.get("FASTER", 0), verdicts.get("SLOWER", 0))
    found = slow["verdicts"].get("FASTER", 0)
    ratio = f"median ratio {statistics.median(slow['ratio']):.3f}"
    enough = 0.9 * asked.planted
    figures = [
        Figure(f"{device}: against itself, SAME of {asked.runs}", same_, "", 0.96 * asked.runs, True, told),
        Figure(f"{device}: against itself, FASTER and SLOWER both", both, "", 0),
        Figure(f"{device}: {extra} more work found of {asked.planted}", found, "", enough, True, ratio),
    ]
    samples: dict[str, object] = {"itself": same, "planted": slow}
    if asked.gpu:
        samples["cupti"] = times = beside_cupti()
        for name, t in times.items():
            off = 100 * abs(t["bench_us"] / t["cupti_us"] - 1)
            note = f"{t['bench_us']:.2f} us, CUPTI {t['cupti_us']:.2f} us"
            figures.append(Figure(f"cuda: a kernel of {name} beside CUPTI", off, "% off", 3.0, note=note))
    print(table("bench trust", figures))
    print(f"\nkept in {write('bench_trust_gpu' if asked.gpu else 'bench_trust', figures, samples)}")
    return 0 if all(f.holds for f in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
