"""What the benchmarks share: figures and their table, samples, child processes, and where results are kept.

A ratio is taken between things measured in one run, side by side: the machine may be slow, but then it is for both.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
MARK = "benchmark-result:"


@dataclass(frozen=True)
class Figure:
    """One measured value beside what is wanted of it; `wanted` is None for a value that only others compare with.

    >>> Figure("raw edit", 0.081, "s", wanted=0.15).holds
    True
    """

    what: str
    value: float
    unit: str  # "s", "us", "x" (times), "MB"
    wanted: float | None = None
    at_least: bool = False  # the value must reach `wanted`, not stay below it
    note: str = ""

    @property
    def holds(self) -> bool:
        if self.wanted is None:
            return True
        return self.value >= self.wanted if self.at_least else self.value <= self.wanted


def number(value: float, unit: str) -> str:
    """Three figures and a unit: `0.081 s`, `25.1 s`, `312 x`."""
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def table(title: str, figures: Sequence[Figure]) -> str:
    """Aligned text: what, measured, wanted, and a plain word where the two disagree."""
    rows = [("", "measured", "wanted", "")]
    for f in figures:
        bound = "" if f.wanted is None else f"{'>=' if f.at_least else '<='} {number(f.wanted, f.unit)}"
        verdict = "" if f.holds else "MISSED"
        rows.append((f.what, number(f.value, f.unit), bound, "  ".join(p for p in (verdict, f.note) if p)))
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    lines = [f"{a:{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
    return "\n".join([title, "", *lines])


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest of some samples."""
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "count": len(samples)}


def timed(what: str, samples: list[float], wanted: float | None = None) -> Figure:
    """The median of some seconds, and their range where there are several."""
    found = spread(samples)
    note = f"{found['min']:.3f} to {found['max']:.3f} over {found['count']}" if len(samples) > 1 else ""
    return Figure(what, found["median"], "s", wanted, note=note)


def slowdown(samples: Sequence[float], window: int) -> float:
    """The last `window` samples' median over the first ones': 1.0 is no slower."""
    if len(samples) < 2 * window:
        raise ValueError(f"{len(samples)} samples hold no two windows of {window}")
    return statistics.median(samples[-window:]) / statistics.median(samples[:window])


def interleaved(timers: Mapping[str, timeit.Timer], *, rounds: int = 25, number: int = 2000) -> dict[str, list[float]]:
    """Seconds a call of each, `rounds` samples of `number` calls, in turn, so that a slow moment meets all of them."""
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer.timeit(max(number // 10, 1))
    for _ in range(rounds):
        for name, timer in timers.items():
            samples[name].append(timer.timeit(number) / number)
    return samples


def ratio(samples: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """How many times `base` one costs: the median over the rounds, in each of which both ran."""
    return statistics.median(a / b for a, b in zip(samples[name], samples[base], strict=True))


def child(module: str, part: str, *arguments: object, environment: Mapping[str, str] | None = None) -> dict:
    """Run `python -m MODULE --part PART ARGUMENT...` in a process of its own; what it handed to `hand_back`."""
    command = [sys.executable, "-m", module, "--part", part, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    marked = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not marked:
        raise SystemExit(f"{part} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(marked[-1].removeprefix(MARK))


@contextlib.contextmanager
def empty_cache() -> Iterator[dict[str, str]]:
    """The environment of processes that share caches of their own, empty at first and removed afterwards."""
    folder = tempfile.mkdtemp(prefix="benchmark-")
    try:
        yield {
            "WORKBENCH_CACHE": os.path.join(folder, "workbench"),
            "TORCH_EXTENSIONS_DIR": os.path.join(folder, "torch"),
            "TVM_FFI_CACHE_DIR": os.path.join(folder, "tvm"),
            "IPYTHONDIR": os.path.join(folder, "ipython"),
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),  # ninja, for torch
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hand_back(result: dict) -> None:
    print(f"{MARK}{json.dumps(result)}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def machine() -> dict[str, object]:
    """The processor, its cores and the system, as the results should name them."""
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    model = models[0].partition(":")[2].strip() if models else platform.processor()
    found = {"cpu": model or "unknown", "cores": len(os.sched_getaffinity(0)), "system": platform.platform(terse=True)}
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(asked[0]):
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
        found |= {"gpus": said, "cuda": _cuda()}
    return found


def _cuda() -> str:
    """The CUDA that torch was built with."""
    import torch

    return torch.version.cuda or "none"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "triton", "apache-tvm-ffi", "kernel-workbench"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=False).stdout
    found["g++"] = compiler.splitlines()[0] if compiler else "not installed"
    return found


def write(name: str, figures: Sequence[Figure], samples: Mapping[str, object]) -> Path:
    """Keep a run in `benchmarks/results/NAME.json`, with the day, the machine and the versions it ran on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": versions(),
        "figures": [{**asdict(f), "holds": f.holds} for f in figures],
        "samples": samples,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def resident_mb() -> float:
    """Memory of this process that is in use now, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
