"""From running an edited GPU cell to an installed and checked kernel, beside `load_inline` and Triton's own compile.

    python -m benchmarks.gpu_latency [--quick]

Needs a CUDA GPU. Every part runs in a process of its own on one empty cache, all in one run; the trial has three small
cases. The others compile, load, and are compared with torch on the same cases; they have no trial. `--quick` leaves
out `load_inline`, which takes 35 s an edit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks import gpu_texts as texts
from benchmarks.common import Figure, child, empty_cache, hand_back, say, table, timed, write

MODULE = "benchmarks.gpu_latency"
SHAPES = ((4, 128), (5, 123), (3, 7, 11))
EDITS, HOST_EDITS, TRITON_EDITS = 10, 4, 4


def define(name: str, dtypes: Sequence | None = None):
    """An op with three small cases, and its trial's processes awake."""
    import torch

    import workbench as wb
    from workbench.trial.gpu_client import gpu_worker

    def reference(x: torch.Tensor, alpha: float = 0.5) -> torch.Tensor:
        return torch.where(x > 0, x, alpha * x)

    reference.__name__ = name
    op = wb.op(f"bench::{name}")(reference)

    @op.cases(dtypes=tuple(dtypes or (torch.float32,)))
    def _(t):
        for shape in SHAPES:
            yield t(*shape)

    gpu_worker().warm()
    return op


def run(build: Callable, op, text: str, edit: int, **numbers: int) -> float:
    """Seconds of one edit: cell run to installed, and its first result on the GPU."""
    import torch

    x = torch.randn(1024, device="cuda")
    torch.cuda.synchronize()
    begun = time.perf_counter()
    build(op, text.format(name=op.name, edit=edit, **numbers))
    op(x)
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def part_raw() -> dict:
    import torch

    import workbench as wb

    three = (torch.float32, torch.float16, torch.bfloat16)
    found: dict = {}
    for what, text, dtypes in (
        ("raw", texts.RAW, None),
        ("three dtypes", texts.RAW, three),
        ("groups", texts.RAW_GROUPS, None),
    ):
        op = define(f"leaky_{what.replace(' ', '_')}", dtypes)
        found[f"first {what}"] = [run(wb.cuda, op, text, 0)]
        time.sleep(1.5)  # headers that are precompiled in the background
        found[what] = [run(wb.cuda, op, text, e) for e in range(1, EDITS + 1)]
        found[f"{what}, back"] = [run(wb.cuda, op, text, e) for e in range(1, EDITS + 1)]
    return found


def part_host() -> dict:
    import workbench as wb

    op = define("leaky_host")
    found: dict = {"first": [run(wb.cuda, op, texts.HOST, 0, host_edit=0)]}
    time.sleep(6)  # the precompiled header
    run(wb.cuda, op, texts.HOST, 1, host_edit=1)
    found["device half"] = [run(wb.cuda, op, texts.HOST, 10 + e, host_edit=1) for e in range(HOST_EDITS)]
    found["host half"] = [run(wb.cuda, op, texts.HOST, 10, host_edit=10 + e) for e in range(HOST_EDITS)]
    return found


def part_triton() -> dict:
    """Edits of a Triton cell, each beside Triton's own compile and first launch of the same text in this process."""
    import torch

    import workbench as wb

    op = define("leaky_triton")
    found: dict = {"first": [run(wb.triton, op, texts.TRITON, 0)], "edit": [], "own": []}
    for e in range(1, TRITON_EDITS + 1):
        found["edit"].append(run(wb.triton, op, texts.TRITON, e))
        launcher = _plain_module(texts.TRITON.format(name="leaky", edit=1000 + e))
        inputs = [torch.randn(s, device="cuda") for s in (*SHAPES, (1024,))]
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for x in inputs:
            launcher(x)
        torch.cuda.synchronize()
        found["own"].append(time.perf_counter() - begun)
    return found


def _plain_module(text: str) -> Callable:
    """The launcher of a Triton text imported from a file, as anyone would."""
    import importlib.util
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write("import torch, triton\nimport triton.language as tl\n" + text)
    spec = importlib.util.spec_from_file_location(f"plain_{os.path.basename(file.name)[:-3]}", file.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.leaky


def part_load_inline(edits: int) -> dict:
    import torch
    from torch.utils import cpp_extension

    seconds = []
    for e in range(edits):
        begun = time.perf_counter()
        module = cpp_extension.load_inline(
            "bench_leaky_cuda", texts.TORCH_DECLARED, texts.TORCH_CUDA.format(edit=e), functions=["leaky"]
        )
        for shape in SHAPES:
            x = torch.randn(shape, device="cuda")
            torch.testing.assert_close(module.leaky(x, 0.5), torch.where(x > 0, x, 0.5 * x))
        seconds.append(time.perf_counter() - begun)
    return {"seconds": seconds}


PARTS: dict = {"raw": part_raw, "host": part_host, "triton": part_triton, "load_inline": part_load_inline}


def figures(samples: dict) -> list[Figure]:
    """The samples of all parts as the table's rows."""
    raw, host, triton = samples["raw"], samples["host"], samples["triton"]
    ratios = [a / b for a, b in zip(triton["edit"], triton["own"], strict=True)]
    rows = [
        timed("raw CUDA edit, three cases", raw["raw"], 0.15),
        timed("raw CUDA, back to an earlier text", raw["raw, back"]),
        timed("raw CUDA edit, float, half and bfloat16", raw["three dtypes"], 0.25),
        timed("raw CUDA edit with cooperative_groups.h", raw["groups"], 0.7),
        timed("host-tier edit, device half", host["device half"], 0.25),
        timed("host-tier edit, host half", host["host half"], 1.2),
        timed("Triton edit", triton["edit"]),
        Figure("  times Triton's own compile", statistics.median(ratios), "x", 1.3),
        timed("first raw CUDA cell, empty cache", raw["first raw"]),
        timed("first Triton cell, empty cache", triton["first"]),
    ]
    if "load_inline" in samples:
        seconds = samples["load_inline"]["seconds"]
        rows.append(timed("load_inline", seconds))
        faster = statistics.median(seconds) / statistics.median(raw["raw"])
        rows.append(Figure("  raw CUDA edit is faster", faster, "x", 200, at_least=True))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without load_inline, which takes 35 s an edit")
    parser.add_argument("--torch-edits", type=int, default=2, help="edits with load_inline (default 2)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        hand_back(part_load_inline(options.torch_edits) if options.part == "load_inline" else PARTS[options.part]())
        return 0
    samples: dict = {}
    with empty_cache() as environment:
        environment["TRITON_CACHE_DIR"] = os.path.join(environment["WORKBENCH_CACHE"], "..", "triton")
        for part in PARTS:
            if not (options.quick and part == "load_inline"):
                say(f"{part} ...")
                samples[part] = child(MODULE, part, "--torch-edits", options.torch_edits, environment=environment)
    rows = figures(samples)
    print(table("From an edited cell to an installed and checked kernel, GPU", rows))
    print(f"\nwritten to {os.path.relpath(write('gpu_latency', rows, samples))}")
    return 0 if all(f.holds for f in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
