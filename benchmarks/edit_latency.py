"""From running an edited cell to an installed and checked kernel: this project beside `load_inline` and tvm-ffi.

    python -m benchmarks.edit_latency [--quick]

Every part runs in a process of its own on one empty cache, all in one run. Cells run in an IPython shell, as in a
notebook, with three small cases in the trial. The others compile, load, and are compared with torch on the same cases;
they have no trial. `--quick` leaves out `load_inline`, which takes 25 s an edit. Needs no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time

from benchmarks.common import Figure, child, empty_cache, hand_back, resident_mb, say, slowdown, table, timed, write
from benchmarks.notebook import Notebook, compare, quiet
from benchmarks.texts import CELL, CELL_CMATH, CELL_HOST, TORCH_CPP, TVM_CPP

MODULE = "benchmarks.edit_latency"
EDITS, HOST_EDITS, NEW_OPS, RESTARTS, IMPORTS, LONG_RUN = 10, 6, 5, 5, 5, 300


def part_edits() -> dict:
    """Edits, new ops and reverts in one session."""
    notebook = Notebook()
    notebook.define("first")
    found: dict = {"first cell in an empty cache": [notebook.edit("first", 0)]}
    quiet()
    found["first <cmath> cell"] = [notebook.edit("first", 0, CELL_CMATH)]
    quiet()
    found["reference cell"], found["new op"] = [], []
    for i in range(NEW_OPS):
        found["reference cell"].append(notebook.define(f"fresh{i}"))
        found["new op"].append(notebook.edit(f"fresh{i}", 0))
    notebook.define("steady")
    notebook.edit("steady", 0)
    found["raw edit"] = [notebook.edit("steady", e) for e in range(1, EDITS + 1)]
    found["raw edit <cmath>"] = [notebook.edit("steady", e, CELL_CMATH) for e in range(1, EDITS + 1)]
    before = notebook.compilers
    found["revert"] = [notebook.edit("steady", e) for e in range(1, EDITS + 1)]
    found["compilers run by reverts"] = notebook.compilers - before
    return found


def part_restart() -> dict:
    """A fresh process on the cache that `part_edits` left: the op's cell, then the kernel's."""
    return restarted(CELL)


def restarted(cell: str) -> dict:
    notebook = Notebook()
    notebook.define("steady")
    before = notebook.compilers
    return {"restart": notebook.edit("steady", 3, cell), "compilers": notebook.compilers - before}


def part_host() -> dict:
    """Edits of a host cell in one session, once its precompiled header and the trial's allocator are there."""
    from workbench.trial import allocator

    notebook = Notebook()
    notebook.define("steady")
    found: dict = {"first host cell": [notebook.edit("steady", 0, CELL_HOST)]}
    allocator.wait()
    quiet()
    found["host edit"] = [notebook.edit("steady", e, CELL_HOST) for e in range(1, HOST_EDITS + 1)]
    before = notebook.compilers
    found["host revert"] = [notebook.edit("steady", e, CELL_HOST) for e in range(1, HOST_EDITS + 1)]
    found["compilers run by reverts"] = notebook.compilers - before
    return found


def part_host_restart() -> dict:
    """The same in a fresh process, on what `part_host` left."""
    return restarted(CELL_HOST)


def part_long_run() -> dict:
    """Many edits of one cell in one process: is the last as quick as the first, and what stays in memory?"""
    notebook = Notebook()
    notebook.define("steady")
    for e in range(1000, 1020):
        notebook.edit("steady", e)
    before = resident_mb()
    samples = [notebook.edit("steady", e) for e in range(2000, 2000 + LONG_RUN)]
    return {"seconds": samples, "more_mb": resident_mb() - before, "slowdown": slowdown(samples, 30)}


def part_import() -> dict:
    import torch  # noqa: F401

    begun = time.perf_counter()
    import workbench  # noqa: F401

    return {"seconds": time.perf_counter() - begun}


def part_load_inline() -> dict:
    """torch's own, as it comes and with its precompiled header, which it puts beside torch; removed at the end."""
    from torch.utils import cpp_extension

    def edit(number: int, **options) -> float:
        begun = time.perf_counter()
        module = cpp_extension.load_inline("bench_leaky", TORCH_CPP.format(edit=number), functions=["leaky"], **options)
        compare(module.leaky)
        return time.perf_counter() - begun

    cpp_extension.remove_extension_h_precompiler_headers()
    try:
        default = [edit(n) for n in (1, 2)]
        first = edit(3, use_pch=True)
        return {"default": default, "first with pch": first, "pch": [edit(n, use_pch=True) for n in (4, 5)]}
    finally:
        cpp_extension.remove_extension_h_precompiler_headers()


def part_tvm_ffi() -> dict:
    import torch
    import tvm_ffi.cpp

    def edit(number: int) -> float:
        begun = time.perf_counter()
        module = tvm_ffi.cpp.load_inline("bench_leaky", cpp_sources=TVM_CPP.format(edit=number), functions=["leaky"])

        def call(x: torch.Tensor, alpha: float) -> torch.Tensor:
            out = torch.empty_like(x)
            module.leaky(x, out, alpha)
            return out

        compare(call)
        return time.perf_counter() - begun

    edit(0)
    return {"seconds": [edit(n) for n in range(1, 4)]}


PARTS = {
    "edits": part_edits,
    "restart": part_restart,
    "host": part_host,
    "host_restart": part_host_restart,
    "long_run": part_long_run,
    "import": part_import,
    "load_inline": part_load_inline,
    "tvm_ffi": part_tvm_ffi,
}


def figures(samples: dict) -> list[Figure]:
    """The samples of all parts as the table's rows; the parts that were left out have none."""
    edits, long_run, restarts = samples["edits"], samples["long_run"], samples["restart"]
    host, host_restarts = samples["host"], samples["host_restart"]
    raw = statistics.median(edits["raw edit"])
    compilers = edits["compilers run by reverts"] + sum(r["compilers"] for r in restarts)
    host_compilers = host["compilers run by reverts"] + sum(r["compilers"] for r in host_restarts)
    rows = [
        timed("raw edit", edits["raw edit"], 0.15),
        timed("raw edit, body with <cmath>", edits["raw edit <cmath>"], 0.2),
        timed("new raw op, launcher built too", edits["new op"], 1.2),
        timed("back to an earlier text", edits["revert"], 0.03),
        timed("first use after a restart", [r["restart"] for r in restarts], 0.03),
        Figure("compilers run in these two", compilers, "", 0),
        timed("host edit", host["host edit"], 0.9),
        timed("host, back to an earlier text", host["host revert"], 0.05),
        timed("host, first use after a restart", [r["restart"] for r in host_restarts], 0.05),
        Figure("compilers run in these two, host", host_compilers, "", 0),
        timed("first host cell, nothing precompiled", host["first host cell"]),
        timed("first cell ever, empty cache", edits["first cell in an empty cache"]),
        timed("the op's own cell", edits["reference cell"]),
        timed("import workbench beyond torch", [r["seconds"] for r in samples["import"]], 0.15),
        Figure(f"{LONG_RUN} edits: last over first", long_run["slowdown"], "x", 1.2),
        Figure(f"{LONG_RUN} edits: more memory", long_run["more_mb"], "MB", 60),
    ]
    peers = {}
    if "load_inline" in samples:
        peers["load_inline"] = samples["load_inline"]["default"]
        peers["load_inline, its precompiled header"] = samples["load_inline"]["pch"]
    if "tvm_ffi" in samples:
        peers["tvm-ffi load_inline"] = samples["tvm_ffi"]["seconds"]
    for name, seconds in peers.items():
        wanted = 120 if name == "load_inline" else None
        rows.append(timed(name, seconds))
        rows.append(Figure("  raw edit is faster", statistics.median(seconds) / raw, "x", wanted, at_least=True))
    return rows


def measure(quick: bool) -> dict:
    """Run the parts, each in a process of its own, on an empty cache that is removed afterwards."""
    plan = {"edits": 1, "restart": RESTARTS, "host": 1, "host_restart": RESTARTS, "long_run": 1, "import": IMPORTS,
            "tvm_ffi": 1, "load_inline": 1}  # fmt: skip
    samples: dict = {}
    with empty_cache() as environment:
        for part, count in plan.items():
            if quick and part == "load_inline":
                continue
            say(f"{part} ...")
            results = [child(MODULE, part, environment=environment) for _ in itertools.repeat(None, count)]
            samples[part] = results if count > 1 else results[0]
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without load_inline, which takes 25 s an edit")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        hand_back(PARTS[options.part]())
        return 0
    samples = measure(options.quick)
    rows = figures(samples)
    print(table("From an edited cell to an installed and checked kernel, CPU", rows))
    print(f"\nwritten to {os.path.relpath(write('edit_latency', rows, samples))}")
    return 0 if all(f.holds for f in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
