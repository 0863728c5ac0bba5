"""The pictures of a benchmark: rates over what was swept, a roofline, or the times of contestants side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..reports.measurement import COPY, MATRIX, Bench, BenchRow, names
from . import bench_words as said
from . import plot, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, PANELS = 440, 214, 3
DASHES = ("-", "--", ":", "-.")
STRIPS = 14  # contestants in the plot of times, at most


def pictures(report: Bench) -> list[tuple[str, str]]:
    """(svg, caption) of what there is to draw: a sweep's lines, a roofline where operations are known, else times."""
    found = [(lines(report, rows), _lines_caption(report, rows, fixed)) for fixed, rows in panels(report)]
    if any(r.timed and report.work_of(r).flops > 0 and r.gflop_per_s > 0 for r in report.rows):
        found.append((roofline(report), "what each reaches, by operations a byte; dashed: measured here"))
    return found or times(report)


# ------------------------------------------------------------ a sweep


def panels(report: Bench) -> list[tuple[dict, list[BenchRow]]]:
    """The rows of each plot of lines, with what is the same in all of them: one for each slot and each dtype."""
    axis = swept(report)
    if not axis:
        return []
    found: dict[tuple, list[BenchRow]] = {}
    for row in report.rows:
        if row.timed:
            rest = tuple((n, str(v)) for n, v in row.values if n not in (axis, "dtype"))
            found.setdefault((row.slot, row.dtype, rest), []).append(row)
    several = [(key, rows) for key, rows in found.items() if len({dict(r.values)[axis] for r in rows}) > 1]
    return [({"slot": slot, "dtype": dtype, **dict(rest)}, rows) for (slot, dtype, rest), rows in several[:PANELS]]


def swept(report: Bench) -> str:
    """The name on the x axis: the first with several values that are numbers."""
    for name in report.sweep:
        values = {dict(r.values).get(name) for r in report.rows}
        if len(values) > 1 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            return name
    return ""


def lines(report: Bench, rows: Sequence[BenchRow]) -> str:
    """A line with its band for each contestant, the op's in the accent colour, under the measured ceiling."""
    axis, kind = swept(report), measure(rows)

    def draw(axes: Axes) -> None:
        ends, top = [], 0.0
        for i, name in enumerate(names(rows)):
            points = sorted((r for r in rows if r.contestant == name), key=lambda r: dict(r.values)[axis])
            x = [dict(r.values)[axis] for r in points]
            y, low, high = ([value(r, kind, at) for r in points] for at in ("time_us", "high_us", "low_us"))
            colour, style = _ink(points[0], i)
            axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
            axes.plot(x, y, color=colour, linestyle=style, linewidth=2 if points[0].own else 1.5)
            if len(x) < 12:
                axes.plot(x, y, color=colour, linestyle="none", marker="o", markersize=3)
            ends.append((x[-1], y[-1], name, plot.ACCENT if points[0].own else plot.SOFT))
            top = max(top, *y)
        ceiling = report.ceiling(COPY) if kind == "gb_per_s" else None
        ceiling = report.ceiling(MATRIX, rows[0].dtype) if kind == "gflop_per_s" else ceiling
        if ceiling is not None and ceiling.value < 3 * top:
            axes.axhline(ceiling.value, color=plot.WARN, linestyle=(0, (3, 3)), linewidth=1)
            ends.append((0, ceiling.value, f"{ceiling.kind.split()[0]} {words.number(ceiling.value, 3)}", plot.SOFT))
        _scaled(axes, [dict(r.values)[axis] for r in rows], kind)
        plot.label_ends(axes, ends)

    return plot.svg(draw, WIDTH, HEIGHT, f"{UNITS[kind]} over {axis}")


UNITS = {"gb_per_s": "GB/s", "gflop_per_s": "GFLOP/s", "time_us": "us"}


def measure(rows: Sequence[BenchRow]) -> str:
    """What is drawn: GFLOP/s where that ceiling is the nearer one, GB/s where bytes are known, else time."""
    own = [r for r in rows if r.own]
    if any(r.ceiling == MATRIX for r in own):
        return "gflop_per_s"
    return "gb_per_s" if any(r.gb_per_s > 0 for r in own) else "time_us"


def value(row: BenchRow, kind: str, at: str) -> float:
    """The figure at one end of the interval of the time."""
    time = getattr(row, at)
    return time if kind == "time_us" else getattr(row, kind) * row.time_us / max(time, 1e-6)


def _ink(row: BenchRow, number: int) -> tuple[str, str]:
    return (plot.ACCENT, "-") if row.own else (plot.FAINT, DASHES[number % len(DASHES)])


def _scaled(axes: Axes, x: Sequence[float], kind: str) -> None:
    """A logarithmic axis for sizes that grow by factors, with the values themselves as ticks."""
    ticks = sorted(set(x))
    if ticks[0] > 0 and ticks[-1] / ticks[0] >= 8:
        axes.set_xscale("log", base=2)
    shown = ticks if len(ticks) <= 9 else ticks[:: -(-len(ticks) // 8)]
    axes.set_xticks(shown, [thousands(t) for t in shown])
    axes.minorticks_off()
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter(lambda y, _: words.number(y, 3))
    if kind == "time_us":
        axes.set_yscale("log")


def thousands(value: float) -> str:
    """`"256"`, `"1k"`, `"16k"`, `"1M"` for powers of two; other numbers as they are."""
    for unit, scale in (("M", 1 << 20), ("k", 1 << 10)):
        if isinstance(value, int) and value >= scale and value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value:g}"


def _lines_caption(report: Bench, rows: Sequence[BenchRow], fixed: Mapping[str, str]) -> str:
    unit = {"time_us": "time in us, by a logarithmic scale,"}.get(measure(rows), UNITS[measure(rows)])
    parts = [f"{unit} over {swept(report)}"]
    parts += [f"{n}={v}" for n, v in fixed.items() if n not in ("slot", "dtype")]
    parts += [words.dtype(fixed["dtype"])] if fixed["dtype"] else []
    parts += ["backward"] if fixed["slot"] == "backward" else []
    parts += ["cold L2" if report.cold else "warm L2"] if report.device == "cuda" else []
    return f"{', '.join(parts)}; bands are 95 % intervals"


# ------------------------------------------------------------ a roofline


def roofline(report: Bench) -> str:
    """Every contestant by its operations a byte, under the ceilings: bandwidth on the left, matrix rate on the right.

    Williams, Waterman and Patterson (2009).
    """
    rows = [r for r in report.rows if r.timed and r.gflop_per_s > 0]
    at = {id(r): report.work_of(r).flops_per_byte for r in rows}
    copy = report.ceiling(COPY)

    def draw(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = min(at.values()) / 4, max(at.values()) * 4
        ends = []
        for dtype in dict.fromkeys(r.dtype for r in rows):
            matrix = report.ceiling(MATRIX, dtype)
            if copy is None or matrix is None:
                continue
            ridge = matrix.value / copy.value
            low, high = min(low, ridge / 4), max(high, ridge * 4)
            axes.plot(
                [low, ridge, high], [low * copy.value, matrix.value, matrix.value],
                color=plot.WARN, linestyle=(0, (3, 3)), linewidth=1,
            )  # fmt: skip
            ends.append((high, matrix.value, f"{words.dtype(dtype)} {said.flops(matrix.value)}", plot.SOFT))
        placed = names(rows)
        for row in rows:
            colour = plot.ACCENT if row.own else plot.FAINT
            marker = "o" if row.own else "sD^vP*X"[(placed.index(row.contestant) - 1) % 7]
            axes.plot([at[id(row)]], [row.gflop_per_s], color=colour, marker=marker, markersize=5, linestyle="none")
        last = {r.contestant: r for r in rows}
        top = max([r.gflop_per_s for r in rows] + [e[1] for e in ends])
        least = min(r.gflop_per_s for r in rows)
        axes.set_xlim(low, high)
        axes.set_ylim(min(least / 2, top / 20), top * 1.5)
        ends += [(high, r.gflop_per_s, n, plot.ACCENT if r.own else plot.SOFT) for n, r in last.items()]
        axes.set_xlabel("operations a byte")
        axes.minorticks_off()
        axes.set_xticks(*_decades(low, high))
        axes.set_yticks(*_decades(*axes.get_ylim(), flops=True))
        plot.label_ends(axes, ends)

    return plot.svg(draw, WIDTH, HEIGHT, "roofline")


def _decades(low: float, high: float, *, flops: bool = False) -> tuple[list[float], list[str]]:
    """Ticks of a logarithmic axis: powers of ten, with twos and fives between where these are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [10.0**p * k for p in powers for k in (1, 2, 5) if low <= 10.0**p * k <= high]
    chosen = every if len(every) <= 6 else [t for t in every if f"{t:e}"[0] == "1"]
    return chosen, [said.flops(t) if flops else f"{t:g}" for t in chosen]


# ------------------------------------------------------------ times


def times(report: Bench) -> list[tuple[str, str]]:
    """A bar with its interval for each contestant, of the longest case of each slot; none where one alone was timed."""
    groups = [[r for r in g if r.timed] for g in report.groups()]
    groups = [g for g in groups if len(g) > 1 and any(r.own for r in g)]
    longest: dict[str, list[BenchRow]] = {}
    for group in sorted(groups, key=lambda g: next(r.time_us for r in g if r.own)):
        longest[group[0].slot] = group[:STRIPS]
    return [_bars(longest[slot]) for slot in sorted(longest, reverse=True)]  # forward first


def _bars(group: Sequence[BenchRow]) -> tuple[str, str]:
    longest = max(r.time_us for r in group)  # intervals are drawn up to twice as far: one may have no end

    def draw(axes: Axes) -> None:
        axes.grid(visible=False)
        for place, row in enumerate(group):
            colour = plot.ACCENT if row.own else plot.FAINT
            axes.barh(place, row.time_us, 0.34, color=colour, alpha=1 if row.own else 0.55)
            end = max(row.time_us, min(row.high_us, 2 * longest))
            axes.plot([row.low_us, end], [place, place], color=plot.INK, linewidth=1.2)
            axes.annotate(
                said.time(row, "µs"), (end, place), xytext=(6, 0), textcoords="offset points", va="center",
                color=plot.INK if row.own else plot.SOFT, annotation_clip=False,
            )  # fmt: skip
        axes.set_yticks(range(len(group)), [r.contestant for r in group])
        axes.set_ylim(len(group) - 0.4, -0.6)
        axes.set_xlim(0, max(min(max(r.high_us, r.time_us), 2 * longest) for r in group) * 1.02)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)

    height = 26 * len(group) + 16
    caption = f"time of a call, {said.on(group[0])}; less is better, lines are 95 % intervals"
    return plot.svg(draw, WIDTH, height, "time of a call"), caption


__all__ = ["lines", "measure", "panels", "pictures", "roofline", "thousands", "times"]
