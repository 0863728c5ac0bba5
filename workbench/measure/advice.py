"""What a benchmark's figures say to do next, and what they say against themselves. Pure functions of a report."""

from __future__ import annotations

from collections.abc import Sequence

from ..reports.measurement import CACHED, Bench, BenchRow, label
from . import statistics

SPREAD = {"cpu": 0.12, "cuda": 0.06}  # of the middle half of the samples, from which on a run is called noisy
DRIFT = {"cpu": 0.08, "cuda": 0.04}
NEAR, FAR = 0.85, 0.6  # shares of a ceiling
MOST = 3
SMALL_BYTES, SMALL_US = 1 << 20, 50.0  # below both the call itself may well be what takes the time


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def noise(name: str, label_: str, samples: Sequence[float], device: str) -> tuple[float, str]:
    """(how bad, what to say) of the samples of one contestant: "" for a quiet run.

    >>> noise("v7", "llama", samples, "cpu")[1]
    'noisy: the middle half of the times of v7 on llama is 31 % wide'
    """
    wide, moved = statistics.spread(samples), statistics.drift(samples)
    found = [(0.0, "")]
    if wide > SPREAD[device]:
        said = f"noisy: the middle half of the times of {name} on {label_} is {percent(wide)} wide"
        found.append((wide / SPREAD[device], said))
    if abs(moved) > DRIFT[device] and abs(moved) > wide / 2:
        how = "longer" if moved > 0 else "less"
        said = f"drift: the last third of the times of {name} on {label_} took {percent(abs(moved))} {how}"
        found.append((abs(moved) / DRIFT[device], said))
    return max(found)


def advice(bench: Bench) -> tuple[str, ...]:
    """At most three sentences on what to do next, what matters most first.

    >>> advice(bench)
    ('13 % to copy bandwidth: `rmsnorm.inspect()` shows how wide its loads are.',)
    """
    own = [r for r in bench.rows if r.own and r.timed]
    if not own:
        return ()
    name = bench.op.rpartition("::")[2]
    found = [
        *_slower(bench, name),
        *_launches(own, name),
        *_ceiling(bench, own, name),
        *_unclear(bench, name),
    ]
    return tuple(dict.fromkeys(found))[:MOST]


def _slower(bench: Bench, name: str) -> list[str]:
    lost = [r for r in bench.rows if r.verdict == statistics.SLOWER]
    if not lost:
        return []
    worst = min(lost, key=lambda r: r.ratio)
    by = f"{1 / worst.ratio:.3g}"
    where = f"`{name}.profile()` shows where the time goes."
    return [f"{worst.contestant} is {by} times as fast on {label(worst)}: {where}"]


def _launches(own: Sequence[BenchRow], name: str) -> list[str]:
    bound = [r for r in own if r.launch_us > r.time_us > 0]
    if not bound:
        return []
    worst = max(bound, key=lambda r: r.launch_us / r.time_us)
    micro = f"{worst.launch_us:.2g} us"
    cure = "larger inputs, or a CUDA graph, hide it."
    return [f"On {label(worst)} launching takes {micro}, longer than the device works: {cure}"]


def _ceiling(bench: Bench, own: Sequence[BenchRow], name: str) -> list[str]:
    known = [r for r in own if r.share > 0 and not r.detail]  # threads that wait for cores say nothing
    if not known:
        return []
    row = max(known, key=lambda r: r.time_us)
    if row.share > CACHED:
        if any(c.busy for c in bench.ceilings):
            return []
        return [f"{label(row)} stays in cache: memory is not what holds it back; try a larger case, too."]
    if row.share < NEAR and bench.work_of(row).bytes < SMALL_BYTES and row.time_us < SMALL_US:
        return [f"{label(row)} is so small that the call itself takes most of the time: bench a larger case."]
    gap = f"{percent(1 - min(row.share, 1.0))} to {row.ceiling} on {label(row)}"
    version = bench.version.removeprefix("v").isdigit()
    look = f"`{name}.inspect()` shows its loads and loops." if version else "a kernel of one pass would get nearer."
    if row.share >= NEAR:
        return [f"{gap}: little is left; less data (a smaller dtype, fusing with a neighbour) would help."]
    if row.share < FAR:
        return [f"{gap}: `{name}.profile()` shows what else it waits for." if version else f"{gap}: {look}"]
    return [f"{gap}: {look}"]


def _unclear(bench: Bench, name: str) -> list[str]:
    rows = [r for r in bench.rows if r.verdict == statistics.UNCLEAR]
    if not rows:
        return []
    again = f"`{name}.bench(budget={min(max(20, round(4 * bench.seconds)), 120):d})`, or a quieter machine, would tell."
    if any(r.timed and r.detail for r in bench.rows):  # threads that wait do so however long one looks
        again = "a machine that is left alone would tell."
    if len(rows) == 1:
        return [f"Unclear against {rows[0].contestant} on {label(rows[0])}: {again}"]
    return [f"{len(rows)} comparisons are unclear: {again}"]
