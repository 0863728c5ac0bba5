"""Numbers and phrases of a profile that its text and its html share. Plain functions, no markup."""

from __future__ import annotations

from collections.abc import Sequence

from ..reports.profiling import Counters, Phase, Profile, ProfileRow
from . import words

HEAD = ("", "runs", "one call", "kernels", "launches", "dispatch", "gaps", "peak memory", "busy")


def time(us: float, micro: str = "us") -> str:
    """`time(41.2) == "41.2 us"`, `time(0.0) == "0"`."""
    return words.duration(us * 1e-6, 3, micro) if us > 0 else "0"


def size(count: float) -> str:
    """`size(4198400) == "4 MB"`, of 1024 each; `size(0) == "none"`."""
    if count <= 0:
        return "none"
    for unit, scale in (("B", 1), ("KB", 1 << 10), ("MB", 1 << 20)):
        if count / scale < 999.5:
            return f"{words.number(count / scale)} {unit}"
    return f"{words.number(count / (1 << 30))} GB"


def head(report: Profile) -> tuple[str, str, str]:
    """What was profiled, where, and how long that took."""
    where = f"{report.device}, {report.device_name}" if report.device_name else report.device
    took = f", {words.duration(report.seconds)}" if report.seconds > 0 else ""
    return f"{report.op} on {report.case}", where, f"{words.count(report.calls, 'call')}{took}"


def phases(report: Profile, micro: str = "us") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A row for each phase, with the columns' names."""
    names = [*HEAD]
    names[4] = "launches" if report.device == "cuda" else "ops"
    names[8] = "threads busy" if report.device == "cpu" else ""
    rows: list[tuple[str, ...]] = []
    for p in report.phases:
        idle = time(p.idle_us, micro) if p.gaps_us else ""
        threads = f"{words.number(p.threads_busy, 2)} of {report.threads}" if report.device == "cpu" else ""
        rows.append((
            p.name, p.runs, time(p.wall_us or p.traced_us, micro), time(p.kernel_us, micro), words.number(p.launches),
            time(p.dispatch_us, micro), idle, size(p.peak_bytes), threads,
        ))  # fmt: skip
    return tuple(names), rows


def reached(report: Profile, micro: str = "us") -> list[str]:
    """For each phase what its kernels reach, and of what: "forward: 310 GB/s, 87 % of copy"."""
    found = []
    for p in report.phases:
        parts = []
        if p.moved_bytes and p.kernel_us:
            share = p.gb_per_s / report.copy_gb_per_s if report.copy_gb_per_s else 0.0
            of = ", in cache" if share > words.CACHED else f", {words.percent(share)} of copy" if share else ""
            parts.append(f"{words.number(p.gb_per_s)} GB/s{of}")
        if p.flops and p.kernel_us:
            parts.append(f"{words.number(p.tflop_per_s)} TFLOP/s")
        if parts:
            found.append(f"{p.name}: {'; '.join(parts)}")
    return found


def kernels(report: Profile, micro: str = "us") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table by kernel."""
    names = ("kernel", "phase", "calls", "self", "share", "regs", "shared", "block", "occupancy", "limited by")
    rows: list[tuple[str, ...]] = [
        (
            k.name, k.phase, words.number(k.count), time(k.self_us, micro), words.percent(k.share),
            str(k.registers or ""), size(k.shared_bytes) if k.registers else "", shape(k.block),
            words.percent(k.occupancy) if k.occupancy else "", k.limiter,
        )
        for k in report.kernels
    ]  # fmt: skip
    return names, rows


def ops(report: Profile, micro: str = "us") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table by op."""
    names = ("op", "phase", "calls", "self", "share", "total", "its kernels")
    rows: list[tuple[str, ...]] = [
        (
            k.name, k.phase, words.number(k.count), time(k.self_us, micro), words.percent(k.share),
            time(k.total_us, micro), time(k.device_us, micro) if k.device_us else "",
        )
        for k in report.ops
    ]  # fmt: skip
    return names, rows


def shape(sizes: Sequence[int]) -> str:
    """`shape((256, 1, 1)) == "256"`."""
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(str(n) for n in kept)


def counters(report: Profile, micro: str = "us") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What the GPU's counters say, a row for each kernel."""
    names = ("kernel", "phase", "time", "occupancy", "memory", "compute", "DRAM", "tensor", "regs", "waits")
    rows: list[tuple[str, ...]] = [
        (
            c.kernel, c.phase, time(c.duration_us, micro), words.percent(c.occupancy), words.percent(c.memory_share),
            words.percent(c.compute_share), words.percent(c.dram_share), words.percent(c.tensor_share),
            str(c.registers or ""), stalls(c),
        )
        for c in report.counters
    ]  # fmt: skip
    return names, rows


def stalls(counted: Counters, most: int = 3) -> str:
    """`"long scoreboard 61 %, wait 9 %"`."""
    return ", ".join(f"{n.replace('_', ' ')} {words.percent(s)}" for n, s in counted.stalls[:most])


def clipped(name: str, most: int = 60) -> str:
    """A long name without its middle."""
    return name if len(name) <= most else f"{name[: most - 16]} ... {name[-11:]}"


def slow(phase: Phase) -> str:
    """How much the profiler slowed the phase down, where that is worth a word."""
    factor = phase.traced_us / phase.wall_us if phase.wall_us else 1.0
    return f"{phase.name} ran {words.number(factor, 2)} times as long under the profiler" if factor >= 1.5 else ""


__all__ = [
    "ProfileRow",
    "clipped",
    "counters",
    "head",
    "kernels",
    "ops",
    "phases",
    "reached",
    "shape",
    "size",
    "slow",
    "stalls",
    "time",
]
