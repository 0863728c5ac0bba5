"""How long tuning takes, and what it gains: again in a new process, beside torch.mm, and beside triton.autotune.

    python -m benchmarks.tune_speed [--gpu]

Without `--gpu`: `kernels/matmul` in C++ at 1024 float32, tuned in one process, and tuned again in the next. With it, on
a CUDA GPU: 64 Triton configurations of that product at 4096 bfloat16, with every cache empty, beside triton.autotune
on the same; then both winners and torch.mm in turn, L2 emptied before each call.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, Figure, child, empty_cache, hand_back, interleaved, say, table, timed, write

MODULE = "benchmarks.tune_speed"
CELL = ROOT / "kernels" / "matmul"
ROUNDS, N = 40, 4096
ONE_MORE = "//! require KC != 384 or (MR == 6 and NV == 2 and MC == 96)"  # of a value that is added, one configuration


def space() -> list[dict]:
    """64 configurations of the Triton kernel."""
    found = []
    for m, n, k, warps, stages in itertools.product((64, 128, 256), (64, 128, 256), (32, 64), (4, 8), (3, 4)):
        if (m, n) != (256, 256):
            sizes = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}
            found.append({**sizes, "num_warps": warps, "num_stages": stages})
    return found


def text(configs: list[dict]) -> str:
    """The Triton file of kernels/matmul with these configurations."""
    whole = (CELL / "matmul_triton.py").read_text(encoding="utf-8")
    start, end = whole.index("def configs"), whole.index("@triton.autotune")
    return (whole[:start] + whole[end:]).replace("configs=configs()", f"configs=[{', '.join(map(spelled, configs))}]")


def spelled(config: dict) -> str:
    values = {n: v for n, v in config.items() if not n.startswith("num_")}
    return f"triton.Config({values!r}, num_warps={config['num_warps']}, num_stages={config['num_stages']})"


# ---------------------------------------------------------------- CPU


def part_cpu(folder: str) -> dict:
    """Tune once and, where the process before has tuned, once more; then in turn with torch.mm."""
    import torch

    import workbench as wb

    wb.load(CELL / "op.py")
    [op] = wb.load(Path(folder) / "matmul.cpp")
    started = time.perf_counter()
    report = op.tune("1024 float32", budget=300)
    seconds = time.perf_counter() - started
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    found = interleaved({"op": _timer(op, a, b), "mm": _timer(torch.mm, a, b)}, rounds=ROUNDS, number=2)
    best = dict(report.best.config) if report.best else {}
    return {"seconds": seconds, "trials": report.trials, "count": len(report.rows), "best": best, **found,
            "threads": torch.get_num_threads(), "speedup": report.speedup}  # fmt: skip


def _timer(function, a, b):
    import timeit

    return timeit.Timer(lambda: function(a, b))


def cpu(environment: dict[str, str]) -> tuple[list[Figure], dict]:
    with tempfile.TemporaryDirectory() as folder:
        cell = (CELL / "matmul.cpp").read_text(encoding="utf-8").replace("//! out ", f"{ONE_MORE}\n//! out ", 1)
        Path(folder, "matmul.cpp").write_text(cell, encoding="utf-8")
        say("C++: first process ...")
        first = child(MODULE, "cpu", "--folder", folder, environment=environment)
        say("C++: second process ...")
        again = [child(MODULE, "cpu", "--folder", folder, environment=environment) for _ in range(3)]
        second = again[-1]
        more = cell.replace("KC = 256, 512", "KC = 256, 512, 384")
        Path(folder, "matmul.cpp").write_text(more, encoding="utf-8")
        say("C++: one value more ...")
        third = child(MODULE, "cpu", "--folder", folder, environment=environment)
    share = statistics.median(m / o for m, o in zip(second["mm"], second["op"], strict=True))
    rows = [
        Figure("C++ matmul, 1024 float32: share of torch.mm", share, "x", 0.4, at_least=True,
               note=f"{second['threads']} threads, {second['best']}"),
        Figure("  tuned over the first configuration", first["speedup"], "x"),
        Figure(f"tuning {first['count']} C++ configurations, empty cache", first["seconds"], "s"),
        Figure("again in a new process: trials", max(a["trials"] for a in again), "", 0),
        timed("again in a new process", [a["seconds"] for a in again], 0.05),
        Figure("with one configuration more: trials", third["trials"], "", 1),
    ]  # fmt: skip
    return rows, {"first": first, "again": again, "one more": third}


# ---------------------------------------------------------------- GPU


def part_ours() -> dict:
    """`op.tune` over all 64, nothing compiled before but the first."""
    import torch

    import workbench as wb

    [op] = wb.load(CELL / "op.py")
    configs = space()
    wb.triton(op, text(configs[:1]))
    torch.ones(1, device="cuda").sum().item()
    started = time.perf_counter()
    report = op.tune(f"{N} bfloat16", configs=configs[1:], budget=600)
    seconds = time.perf_counter() - started
    told: dict[str, int] = {}
    for row in report.rows:
        told[row.status] = told.get(row.status, 0) + 1
    assert report.best is not None, str(report)
    return {"seconds": seconds, "best": dict(report.best.config), "best_us": report.best.time_us, "statuses": told}


def part_own() -> dict:
    """triton.autotune over the same 64, in a process and a cache of its own."""
    import importlib.util

    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plain.py")
        path.write_text("import torch\nimport triton\nimport triton.language as tl\n" + text(space()), encoding="utf-8")
        found = importlib.util.spec_from_file_location("plain", path)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        a, b = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        (a @ b).sum().item()
        started = time.perf_counter()
        module.matmul(a, b)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        best = next(iter(module.matmul_kernel.cache.values()))
    return {"seconds": seconds, "best": {**best.kwargs, "num_warps": best.num_warps, "num_stages": best.num_stages}}


def part_winners(ours: str, own: str) -> dict:
    """Device seconds of both winners and of torch.mm, in turn."""
    import json

    import torch

    import workbench as wb
    from workbench.measure.clock import Call, GpuClock
    from workbench.measure.device import Cuda

    a, b = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    calls = [Call("mm", lambda: torch.mm(a, b))]
    for name, given in (("ours", ours), ("own", own)):
        op = wb.op(f"bench_{name}::matmul(Tensor a, Tensor b) -> Tensor")
        wb.triton(op, text([json.loads(given)]), cases=[])
        calls.append(Call(name, lambda op=op: op(a, b)))
    clock = GpuClock(Cuda())
    for call in calls:
        clock.warm(call)
    rounds = [r for _ in range(ROUNDS) for r in clock.sample(calls, [[0, 1, 2]])]
    return {call.name: [r[i] for r in rounds] for i, call in enumerate(calls)}


def gpu(environment: dict[str, str]) -> tuple[list[Figure], dict]:
    import json

    found: dict = {}
    for part in ("ours", "own"):
        say(f"{part} ...")
        cold = {**environment, "TRITON_CACHE_DIR": tempfile.mkdtemp(prefix="triton-"),
                "WORKBENCH_CACHE": tempfile.mkdtemp(prefix="workbench-")}  # fmt: skip
        found[part] = child(MODULE, part, environment=cold)
    best = [json.dumps(found[part]["best"]) for part in ("ours", "own")]
    say("winners ...")
    found["winners"] = times = child(MODULE, "winners", "--ours", best[0], "--own", best[1], environment=environment)
    worse = statistics.median(a / b for a, b in zip(times["ours"], times["own"], strict=True))
    share = statistics.median(m / o for m, o in zip(times["mm"], times["ours"], strict=True))
    told = found["ours"]["statuses"]
    rows = [
        Figure("64 Triton configurations, cold: op.tune", found["ours"]["seconds"], "s", note=str(told)),
        Figure("64 Triton configurations, cold: triton.autotune", found["own"]["seconds"], "s"),
        Figure("  op.tune is faster", found["own"]["seconds"] / found["ours"]["seconds"], "x", 4, at_least=True),
        Figure("  its winner's time over triton.autotune's", worse, "x", 1.02, note=best[0]),
        Figure(f"Triton matmul, {N} bfloat16: share of torch.mm", share, "x", 0.8, at_least=True),
    ]
    return rows, found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="the parts that need a CUDA GPU")
    parser.add_argument("--part", choices=("cpu", "ours", "own", "winners"), help=argparse.SUPPRESS)
    for name in ("folder", "ours", "own"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        done = {"cpu": lambda: part_cpu(options.folder), "ours": part_ours, "own": part_own,
                "winners": lambda: part_winners(options.ours, options.own)}[options.part]()  # fmt: skip
        hand_back(done)
        return 0
    with empty_cache() as environment:
        # As where it is installed: Python keeps what it has compiled of the package.
        compiled = os.path.join(environment["WORKBENCH_CACHE"], "..", "python")
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": compiled}
        rows, samples = cpu(environment)
        if options.gpu:
            environment["TRITON_CACHE_DIR"] = os.path.join(environment["WORKBENCH_CACHE"], "..", "triton")
            more, found = gpu(environment)
            rows, samples = [*rows, *more], {**samples, **found}
    print(table("Tuning", rows))
    name = "tune_speed_gpu" if options.gpu else "tune_speed"
    print(f"\nwritten to {os.path.relpath(write(name, rows, samples))}")
    return 0 if all(f.holds for f in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
