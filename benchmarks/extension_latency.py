"""The full tier beside `load_inline`: edits, first cells, sources of one extension, a long run of library blocks.

    python -m benchmarks.extension_latency [--quick]

Every part runs in a process of its own on one empty cache, all in one run. Cells run in an IPython shell, as in a
notebook, with three small cases in the trial; what `load_inline` builds is compared with torch on the same cases, and
has no trial. Edits of both take turns in one process. Precompiled headers are waited for, but not by the first cell.
`--quick` takes one edit of each, and 10 in the long run. Needs no GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common import Figure, child, empty_cache, hand_back, resident_mb, say, slowdown, table, timed, write
from benchmarks.notebook import Notebook, compare, quiet
from benchmarks.texts import CELL_FULL, CELL_LONG, INCLUDE, LIBRARY, MODULE, SOURCE, TORCH_CPP

NAME = "benchmarks.extension_latency"
LONG_RUN_S = 270.0  # of the machine's time, however slow it is
KINDS = {"function": "", "TORCH_LIBRARY": LIBRARY, "PYBIND11_MODULE": MODULE}
FASTER = {"function": 8.0, "TORCH_LIBRARY": 8.0, "PYBIND11_MODULE": 3.5}
SOURCES = 4


@dataclass(frozen=True)
class Counts:
    """How often each thing is measured."""

    edits: int = 5
    restarts: int = 5
    ours: int = 3
    theirs: int = 2
    long_run: int = 100


QUICK = Counts(edits=1, restarts=1, ours=1, theirs=1, long_run=10)


def text(kind: str, space: str) -> str:
    """The source of one kind of extension; for `str.format` with `edit`."""
    return INCLUDE + TORCH_CPP + KINDS[kind].replace("{space}", space)


def part_first_load_inline() -> dict:
    """torch's own, for the first time in this process and in an empty folder."""
    from torch.utils import cpp_extension

    for folder in cpp_extension.include_paths():  # from the disk, so that the one who comes second has no advantage
        for header in Path(folder).rglob("*.h"):
            header.read_bytes()
    return {"seconds": inline("function", 0)}


def inline(kind: str, edit: int) -> float:
    """Seconds that `load_inline` takes for a new text, until its function was seen to be right."""
    import torch
    from torch.utils import cpp_extension

    # A library's names cannot be defined twice in one process, so there each edit needs other ones.
    space = {"TORCH_LIBRARY": f"bench_inline{edit}", "PYBIND11_MODULE": "TORCH_EXTENSION_NAME"}.get(kind, "")
    options: dict = {"functions": ["leaky"]} if kind == "function" else {}
    begun = time.perf_counter()
    source, is_python_module = text(kind, space).format(edit=edit), kind != "TORCH_LIBRARY"
    module = cpp_extension.load_inline(f"bench_{kind.lower()}", source, is_python_module=is_python_module, **options)
    compare(getattr(torch.ops, space).leaky if kind == "TORCH_LIBRARY" else module.leaky)
    return time.perf_counter() - begun


def settled() -> None:
    """Wait for precompiled headers and for what helps the trial."""
    from workbench.build import headers
    from workbench.trial import allocator

    if not headers.wait(headers.FULL_LIMIT_S):
        raise SystemExit("the precompiled headers are not ready")
    allocator.wait()
    quiet()


def part_edits(edits: int) -> dict:
    """A function on at::Tensor: its first cell in an empty cache, edits, and back to each of them."""
    notebook = Notebook()
    notebook.define("leaky")
    found: dict = {"first": notebook.edit("leaky", 0, CELL_FULL)}
    settled()
    found["edit"] = [notebook.edit("leaky", e, CELL_FULL) for e in range(1, edits + 1)]
    notebook.edit("leaky", 0, CELL_FULL)
    before = notebook.compilers
    found["revert"] = [notebook.edit("leaky", e, CELL_FULL) for e in range(1, edits + 1)]
    return {**found, "compilers": notebook.compilers - before}


def part_restart() -> dict:
    """A fresh process on the cache that `part_edits` left: the op's cell, then the kernel's."""
    notebook = Notebook()
    notebook.define("leaky")
    before = notebook.compilers
    return {"seconds": notebook.edit("leaky", 1, CELL_FULL), "compilers": notebook.compilers - before}


def part_builds(kind: str, ours: int, theirs: int) -> dict:
    """Edits of one kind of extension, ours and `load_inline`'s in turn, after the first of each."""
    notebook = Notebook()
    space = "bench_blocks"
    cell = ("%%cpp leaky\n" if kind == "function" else "%%cpp\n") + text(kind, space)
    if kind == "function":
        notebook.define("leaky")
    found: dict = {"first": notebook.edit("leaky", 0, cell), "ours": [], "theirs": []}
    if kind != "function":
        notebook.define("leaky", space)
    settled()
    if kind != "function":
        notebook.edit("leaky", 0, cell)  # the reference has come since
    for e in range(1, max(ours, theirs) + 1):
        if e <= ours:
            found["ours"].append(notebook.edit("leaky", e, cell))
        if e <= theirs:
            found["theirs"].append(inline(kind, e))
    found["revert"] = [notebook.edit("leaky", e, cell) for e in range(ours)]
    return found


def part_sources() -> dict:
    """Four sources in a folder, then one of them edited: how many compilers ran."""
    import torch

    notebook = Notebook()
    with tempfile.TemporaryDirectory(prefix="bench-sources-") as folder:
        names = [f"s{i}.cpp" for i in range(SOURCES)]

        def load(edits: Sequence[int]) -> tuple[float, int]:
            for i, (name, edit) in enumerate(zip(names, edits, strict=True)):
                (Path(folder) / name).write_text(SOURCE.format(number=i, edit=edit))
            before = notebook.compilers
            seconds = notebook.run(f"wb.load({folder!r}, sources={names})")
            for i, edit in enumerate(edits):
                got = getattr(torch.ops.bench_sources, f"plus{i}")(torch.zeros(1)).item()
                if got != edit:
                    raise SystemExit(f"source {i} adds {edit} and gave {got}")
            return seconds, notebook.compilers - before

        all_s, all_compiled = load([0] * SOURCES)
        if all_compiled != SOURCES:
            raise SystemExit(f"{all_compiled} compilers ran for {SOURCES} new sources")
        settled()
        one_s, one_compiled = load([0, 0, 5, 0])
    return {"all": all_s, "one": one_s, "compiled": one_compiled}


def part_long_run(edits: int) -> dict:
    """Edits of one block in one process, each of them seen to be what runs; ends early when its time is over."""
    import torch

    notebook = Notebook()
    notebook.edit("", 1, CELL_LONG)
    settled()
    for e in (2, 3):
        notebook.edit("", e, CELL_LONG)
    before, deadline = resident_mb(), time.monotonic() + LONG_RUN_S
    samples: list[float] = []
    while len(samples) < edits and (len(samples) < QUICK.long_run or time.monotonic() < deadline):
        edit = 100 + len(samples)
        samples.append(notebook.edit("", edit, CELL_LONG))
        got = torch.ops.bench_long.plus(torch.zeros(1)).item()
        if got != edit:
            raise SystemExit(f"the block adds {edit} and gave {got}")
    return {"seconds": samples, "more_mb": resident_mb() - before, "slowdown": slowdown(samples, len(samples) // 5)}


PARTS: dict[str, Callable[..., dict]] = {
    "first_load_inline": part_first_load_inline,
    "edits": part_edits,
    "restart": part_restart,
    "builds": part_builds,
    "sources": part_sources,
    "long_run": part_long_run,
}


def measure(counts: Counts) -> dict:
    """Run the parts, each in a process of its own, on an empty cache that is removed afterwards."""
    with empty_cache() as environment:

        def run(part: str, *arguments: object) -> dict:
            say(" ".join(map(str, (part, *arguments))) + " ...")
            return child(NAME, part, *arguments, environment=environment)

        return {
            "counts": asdict(counts),
            "first_load_inline": run("first_load_inline"),
            "edits": run("edits", counts.edits),
            "restart": [run("restart") for _ in range(counts.restarts)],
            "builds": {kind: run("builds", kind, counts.ours, counts.theirs) for kind in KINDS},
            "sources": run("sources"),
            "long_run": run("long_run", counts.long_run),
        }


def figures(samples: dict) -> list[Figure]:
    """The samples of all parts as the table's rows."""
    edits, restarts = samples["edits"], samples["restart"]
    first = samples["first_load_inline"]["seconds"]
    compilers = edits["compilers"] + sum(r["compilers"] for r in restarts)
    rows = [
        timed("full-tier edit, ATen headers", edits["edit"], 3.2),
        timed("back to an earlier text", edits["revert"], 0.05),
        timed("first use after a restart", [r["seconds"] for r in restarts], 0.05),
        Figure("compilers run in these two", compilers, "", 0),
        timed("first cell ever, nothing precompiled", [edits["first"]]),
        Figure("  over the first load_inline", edits["first"] / first, "x", 1, note=f"which takes {first:.1f} s"),
    ]
    for kind, found in samples["builds"].items():
        ours, theirs = statistics.median(found["ours"]), statistics.median(found["theirs"])
        rows += [
            timed(f"<torch/extension.h>, {kind}", found["ours"]),
            Figure("  faster than load_inline", theirs / ours, "x", FASTER[kind], at_least=True,
                   note=f"which takes {theirs:.1f} s"),
            timed("  back to an earlier text", found["revert"], 0.05),
        ]  # fmt: skip
    sources, long_run = samples["sources"], samples["long_run"]
    done = f"{len(long_run['seconds'])} edits, {statistics.median(long_run['seconds']):.2f} s each"
    return [
        *rows,
        Figure("four sources, one edited: compiled", sources["compiled"], "", 1),
        timed("  from the edit to its ops", [sources["one"]]),
        Figure("many edits of a TORCH_LIBRARY cell: last over first", long_run["slowdown"], "x", 1.2, note=done),
        Figure("  more memory", long_run["more_mb"], "MB", 200, note=done),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one edit of each, and 10 in the long run")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        hand_back(PARTS[options.part](*(int(a) if a.isdigit() else a for a in options.arguments)))
        return 0
    samples = measure(QUICK if options.quick else Counts())
    rows = figures(samples)
    print(table("C++ extensions, from a cell to its ops, CPU", rows))
    print(f"\nwritten to {write('extension_latency', rows, samples)}")
    return 0 if all(f.holds for f in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
