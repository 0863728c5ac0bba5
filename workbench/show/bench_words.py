"""Numbers and phrases that the text and the html forms of a benchmark share. Plain functions, no markup."""

from __future__ import annotations

from collections.abc import Sequence

from ..reports.measurement import CACHED, COPY, Bench, BenchRow
from . import words

CLASSES = {"FASTER": "good", "SLOWER": "bad", "SAME": "soft", "UNCLEAR": "faint"}


def time(row: BenchRow, micro: str = "us") -> str:
    """`"41.2 us"`; "" for what was not timed."""
    return words.duration(row.time_us * 1e-6, 3, micro) if row.timed else ""


def ratio(row: BenchRow) -> str:
    """`"1.14"`: how many times the op's own time; "" for the op itself."""
    return "" if row.own or not row.timed else plain(row.ratio)


def within(row: BenchRow) -> str:
    """The 95 % interval of the ratio: `"1.12 to 1.16"`."""
    if row.own or not row.timed:
        return ""
    low, high = row.ratio_low, row.ratio_high
    return f"{plain(low)} to {plain(high)}" if high < 1e6 else "not known yet"


def plain(value: float) -> str:
    """A ratio with as many digits as one reads: `"0.98"`, `"4.96"`, `"12.3"`, `"1,240"`."""
    return f"{value:.2f}" if value < 10 else words.number(value, 3)


def verdict(row: BenchRow, own: str) -> str:
    """`"v7 FASTER"`, `"SAME"`: FASTER and SLOWER are said of the op."""
    if row.status != "timed":
        return row.status
    return f"{own} {row.verdict}" if row.verdict in ("FASTER", "SLOWER") else row.verdict


def rate(row: BenchRow) -> str:
    """`"3,740 GB/s"` or, where the matrix rate is the nearer ceiling, `"61.2 TFLOP/s"`."""
    if row.ceiling and row.ceiling != COPY:
        return flops(row.gflop_per_s)
    return f"{words.number(row.gb_per_s, 3)} GB/s" if row.gb_per_s > 0 else ""


def flops(gflop_per_s: float) -> str:
    if gflop_per_s >= 1000:
        return f"{words.number(gflop_per_s / 1000, 3)} TFLOP/s"
    return f"{words.number(gflop_per_s, 3)} GFLOP/s" if gflop_per_s > 0 else ""


def share(row: BenchRow) -> str:
    """`"87 % of copy"`: of the nearer ceiling, by its first word; "in cache" above what memory gives."""
    if row.share > CACHED:
        return "in cache"
    return f"{words.percent(row.share)} of {row.ceiling.split()[0]}" if row.share > 0 else ""


def memory(row: BenchRow) -> str:
    """`"134 MB"`: the most that torch held beyond the inputs."""
    if row.peak_mb <= 0:
        return ""
    for unit, scale in (("GB", 1e3), ("MB", 1.0), ("KB", 1e-3)):
        if row.peak_mb >= scale:
            return f"{words.number(row.peak_mb / scale, 3)} {unit}"
    return f"{row.peak_mb * 1e6:.0f} B"


def on(row: BenchRow, slots: Sequence[str] = ()) -> str:
    """The case of a group as one reads it: `"llama bf16"`, `"llama bf16, backward"`."""
    named = f"{row.case} {words.dtype(row.dtype)}".strip()
    return f"{named}, {row.slot}" if row.slot != "forward" or len(set(slots)) > 1 else named


def own_of(group: Sequence[BenchRow]) -> str:
    """The name of the op itself among the contestants of a case."""
    return next((r.contestant for r in group if r.own), "")


def caption(report: Bench, micro: str = "us") -> str:
    """How it was measured, in a line: launch cost, samples, cold or warm, clock, machine."""
    own = [r for r in report.rows if r.own and r.timed]
    if not own:
        return report.machine
    launches = [r.launch_us for r in own if r.launch_us > 0]
    samples = sorted(r.samples for r in own)
    parts = []
    if launches:
        parts.append(f"launch cost {words.duration(max(launches) * 1e-6, 2, micro)} apart")
    many = f"{samples[0]}" if samples[0] == samples[-1] else f"{samples[0]} to {samples[-1]}"
    parts.append(f"{many} sample{'s' * (samples[-1] != 1)} in turn")
    if report.device == "cuda":
        parts.append("cold L2" if report.cold else "warm L2")
    parts += [report.clock, report.machine, "intervals of 95 %"]
    return "; ".join(p for p in parts if p)


def ceilings(report: Bench) -> str:
    """`"ceilings measured here: copy 4,280 GB/s, bf16 matrix products 712 TFLOP/s"`; "" where none was needed."""
    said = []
    for c in report.ceilings:
        if c.kind == COPY:
            said.append(f"copy {words.number(c.value, 3)} GB/s")
        else:
            said.append(f"{words.dtype(c.dtype)} matrix products {flops(c.value)}")
    return f"ceilings measured here: {', '.join(said)}" if said else ""
