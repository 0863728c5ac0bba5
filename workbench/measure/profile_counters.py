"""A GPU's own counters, as NVIDIA's ncu writes them: how it is started, what its csv means, why it may have none.

Pure but for `program`, which looks whether ncu is here. Metrics are those of the sections that are named below, see the
Nsight Compute documentation, Kernel Profiling Guide.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence

from .. import settings
from ..reports.profiling import Counters, ProfileRow
from .profile_figures import short

SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats", "ComputeWorkloadAnalysis")
MOST_LAUNCHES = 12
MISSING = "the GPU's counters were not asked: ncu is not here. It comes with the CUDA toolkit (`nsight-compute`)"
REFUSED = (
    "the GPU's counters are closed to this user (ERR_NVGPUCTRPERM). An administrator opens them with the option "
    "`NVreg_RestrictProfilingToAdminUsers=0` of the module nvidia; in a container with `--cap-add=SYS_ADMIN`"
)
DURATION = ("gpu__time_duration.sum", "Duration")
OCCUPANCY = ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy")
MEMORY = ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "Memory Throughput")
COMPUTE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput")
DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput",
)
REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active")
TENSOR = re.compile(r"pipe_tensor.*pct_of_peak")
US = {"second": 1e6, "s": 1e6, "msecond": 1e3, "ms": 1e3, "usecond": 1.0, "us": 1.0, "nsecond": 1e-3, "ns": 1e-3}

Metrics = Mapping[str, tuple[float, str]]  # name -> value, unit


def program() -> str:
    """ncu: on PATH, or in a CUDA toolkit that is named or in its usual place; "" where there is none."""
    homes = [*settings.cuda_homes(), "/usr/local/cuda"]
    folders = [settings.programs(), *(os.path.join(h, "bin") for h in homes)]
    return shutil.which("ncu", path=os.pathsep.join(folders)) or ""


def command(path: str, log: str, kernels: Iterable[str]) -> tuple[str, ...]:
    """How ncu is started; the program to watch follows. Only kernels of these names are counted."""
    names = "|".join(sorted(map(re.escape, set(kernels))))
    return (
        path, "--csv", "--page", "raw", "--print-units", "base", "--log-file", log, "--target-processes", "all",
        "--clock-control", "none", "--launch-count", str(MOST_LAUNCHES),
        "--kernel-name-base", "function", "--kernel-name", f"regex:^({names})$",
        *(part for s in SECTIONS for part in ("--section", s)),
    )  # fmt: skip


def bare(name: str) -> str:
    """A kernel's name as ncu matches it: no namespaces, no template arguments.

    >>> bare("ops::rmsnorm<float, 512>")
    'rmsnorm'
    """
    return short(name).partition("<")[0].rpartition("::")[2].strip()


def refusal(text: str) -> str:
    """Why ncu counted nothing, from what it wrote; "" where it did."""
    if "ERR_NVGPUCTRPERM" in text:
        return REFUSED
    errors = re.findall(r"^==ERROR== (.+)$", text, re.MULTILINE)
    if errors:
        return f"the GPU's counters: ncu says {errors[0].strip().rstrip('.')}"
    if "No kernels were profiled" in text:
        return "the GPU's counters: ncu saw none of these kernels"
    return ""


def parse(text: str) -> list[tuple[str, dict[str, tuple[float, str]]]]:
    """The launches in ncu's csv, each with its metrics: a row for each (page raw), or one for each metric (details).

    >>> parse(text)[0][1]["gpu__time_duration.sum"]
    (40928.0, 'nsecond')
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    if not rows or "Kernel Name" not in rows[0]:
        return []
    head = rows[0]
    return _long(head, rows[1:]) if "Metric Name" in head else _wide(head, rows[1:])


def _wide(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, dict[str, tuple[float, str]]]]:
    units = rows[0] if rows and not rows[0][0] else [""] * len(head)
    found = []
    for row in rows:
        if row is units or len(row) < len(head):
            continue
        cells = dict(zip(head, row, strict=False))
        metrics = {n: (value, u) for n, u in zip(head, units, strict=False) if (value := number(cells[n])) is not None}
        found.append((cells["Kernel Name"], metrics))
    return found


def _long(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, dict[str, tuple[float, str]]]]:
    launches: dict[str, tuple[str, dict[str, tuple[float, str]]]] = {}
    for row in rows:
        cells = dict(zip(head, row, strict=False))
        value = number(cells.get("Metric Value", ""))
        _, metrics = launches.setdefault(cells.get("ID", ""), (cells.get("Kernel Name", ""), {}))
        name, unit = cells.get("Metric Name", ""), cells.get("Metric Unit", "")
        if value is not None and (name not in metrics or unit == "%"):  # other sections repeat names in other units
            metrics[name] = (value, unit)
    return list(launches.values())


def number(cell: str) -> float | None:
    """A number of ncu's, with or without commas between thousands; None for what is none."""
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def counters(text: str, rows: Sequence[ProfileRow]) -> tuple[Counters, ...]:
    """What ncu's csv says of the kernels of a profile, the dearest first; each kernel once, by its longest launch."""
    wanted = {bare(r.name): r for r in reversed(rows)}
    found: dict[str, Counters] = {}
    for kernel, metrics in parse(text):
        row = wanted.get(bare(kernel))
        if row is None:
            continue
        made = _counters(row, metrics)
        if row.name not in found or made.duration_us > found[row.name].duration_us:
            found[row.name] = made
    return tuple(sorted(found.values(), key=lambda c: -c.duration_us))


def _counters(row: ProfileRow, metrics: Metrics) -> Counters:
    value, unit = next((metrics[n] for n in DURATION if n in metrics), (0.0, "nsecond"))
    tensor = [v for n, (v, _) in metrics.items() if TENSOR.search(n)]
    return Counters(
        row.name,
        row.phase,
        value * US.get(unit, 1e-3),
        _share(metrics, OCCUPANCY),
        _share(metrics, MEMORY),
        _share(metrics, COMPUTE),
        _share(metrics, DRAM),
        max(tensor, default=0.0) / 100,
        int(next((metrics[n][0] for n in REGISTERS if n in metrics), row.registers)),
        stalls(metrics),
    )


def _share(metrics: Metrics, names: Sequence[str]) -> float:
    return next((metrics[n][0] / 100 for n in names if n in metrics), 0.0)


def stalls(metrics: Metrics) -> tuple[tuple[str, float], ...]:
    """Why warps wait, the largest first, as shares of all cycles in which they do."""
    found = {m[1]: value for name, (value, _) in metrics.items() if (m := STALL.match(name)) and m[1] != "selected"}
    whole = sum(found.values())
    if not whole:
        return ()
    return tuple(sorted(((n, v / whole) for n, v in found.items() if v > 0), key=lambda s: -s[1]))
