"""From the calls of a trace to figures: phases, tables by kernel and by op, the timeline and the memory of one call.

Pure: no torch, no clock.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..inspect.occupancy import occupancy
from ..reports.measurement import Work
from ..reports.profiling import Phase, ProfileRow, Span
from .profile_trace import ON_DEVICE, PHASES, WAITS, Call, Event

TIMELINE_MOST = 2000  # spans of one call that a report keeps


@dataclass(frozen=True)
class Undisturbed:
    """One phase with no profiler running: wall time of one call, and how many threads were busy."""

    wall_us: float = 0.0
    threads_busy: float = 0.0


def median(calls: Sequence[Call]) -> Call:
    """The call of median duration: the one whose timeline is shown."""
    return sorted(calls, key=lambda c: c.traced_us)[(len(calls) - 1) // 2]


def phase(
    name: str,
    calls: Sequence[Call],
    device: str,
    *,
    runs: str = "",
    event_cost_us: float = 0.0,
    alone: Undisturbed | None = None,
    work: Work | None = None,
) -> Phase:
    """One phase in figures: medians over the calls, pauses and memory of the median call.

    `event_cost_us` is what the profiler itself adds to the CPU's time for each event.
    """
    alone, work = alone or Undisturbed(), work or Work(0.0, 0.0, "")
    with_it = [c for c in calls if name in c.marks]
    one = median(with_it)
    peak, kept = memory_of(one, name, device)
    kernel_us = statistics.median(sum(e.own_us for e in busy(c, name, device)) for c in with_it)
    dispatch_us = statistics.median(dispatch(c, name, device, event_cost_us) for c in with_it)
    return Phase(
        name,
        runs,
        alone.wall_us,
        statistics.median(c.marks[name][1] - c.marks[name][0] for c in with_it),
        kernel_us,
        capped(dispatch_us, kernel_us, alone.wall_us, device),
        statistics.median(sum(e.kind != "copy" for e in busy(c, name, device)) for c in with_it),
        statistics.median(sum(e.kind == "copy" for e in busy(c, name, device)) for c in with_it),
        gaps([(e.start_us, e.end_us) for e in busy(one, name, device)]),
        peak,
        kept,
        alone.threads_busy,
        int(work.bytes),
        int(work.flops),
        statistics.median(_waits(c, name) for c in with_it),
    )


def capped(dispatch_us: float, kernel_us: float, wall_us: float, device: str) -> float:
    """At most what a call without the profiler has room for: the profiler slows Python down in more ways than one.

    >>> capped(192, 18, 85, "cpu"), capped(545, 99333, 90000, "cpu")
    (67, 545)
    """
    if not wall_us:
        return dispatch_us
    room = wall_us - kernel_us if device == "cpu" and wall_us > kernel_us else wall_us
    return min(dispatch_us, room)


def busy(call: Call, name: str, device: str) -> list[Event]:
    """What computes in one phase of one call: on a GPU kernels, copies and fills, on a CPU ops with own work."""
    wanted: Callable[[Event], bool] = (lambda e: e.kind in ON_DEVICE) if device == "cuda" else (lambda e: e.kernel)
    return [e for e in call.events if e.phase == name and wanted(e)]


def dispatch(call: Call, name: str, device: str, event_cost_us: float = 0.0) -> float:
    """What the CPU does besides kernels and waiting, without what the profiler adds."""
    start, end = call.marks[name]
    mine = [e for e in call.events if e.phase == name and e.kind not in ON_DEVICE]
    spent = _waits(call, name) if device == "cuda" else sum(e.own_us for e in mine if e.kernel)
    return max(end - start - spent - event_cost_us * len(mine), 0.0)


def _waits(call: Call, name: str) -> float:
    return sum(e.duration_us for e in call.events if e.phase == name and e.name in WAITS)


def gaps(intervals: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """The pauses between intervals, those that overlap taken together.

    >>> gaps([(0, 4), (6, 9), (7, 8), (10, 12)])
    (2, 1)
    """
    found, latest = [], None
    for start, end in sorted(intervals):
        if latest is not None and start > latest:
            found.append(start - latest)
        latest = end if latest is None else max(latest, end)
    return tuple(found)


def memory_of(call: Call, name: str, device: str) -> tuple[int, int]:
    """The most bytes beyond those at the begin of a phase, and those left at its end."""
    start, end = call.marks[name]
    now = peak = 0
    for at, size, where in call.memory:
        if start <= at <= end and where == device:
            now += size
            peak = max(peak, now)
    return peak, now


def memory(call: Call, device: str) -> tuple[tuple[float, int], ...]:
    """The bytes allocated on the device since the begin of the call: a step at each (microseconds, bytes)."""
    found, now = [(0.0, 0)], 0
    for at, size, where in call.memory:
        if where == device:
            now += size
            found.append((at - call.start_us, now))
    return tuple(found)


def timeline(call: Call, device: str) -> tuple[Span, ...]:
    """The spans of one call in the order of their begin, the shortest left out where there are too many."""
    begin = call.start_us
    marks = [Span(n, "phase", "", a - begin, b - a, 0, n) for n, (a, b) in call.marks.items()]
    tracks = _tracks(call)
    spans = [
        Span(
            short(e.name),
            "kernel" if e.kernel and device == "cpu" else e.kind,
            tracks[e.track], e.start_us - begin, e.duration_us, e.depth,
            e.phase,
        )
        for e in call.events
    ]  # fmt: skip
    if len(spans) > TIMELINE_MOST:
        spans = sorted(spans, key=lambda s: -s.duration_us)[:TIMELINE_MOST]
    return (*marks, *sorted(spans, key=lambda s: (s.start_us, -s.duration_us)))


def _tracks(call: Call) -> dict[str, str]:
    """A name for each thread and stream: the thread that calls, then those of autograd."""
    threads = list(dict.fromkeys(e.track for e in call.events if e.kind not in ON_DEVICE))
    names = {
        t: "CPU" if i == 0 else "CPU, autograd" if i == 1 else f"CPU, thread {i + 1}" for i, t in enumerate(threads)
    }
    streams = list(dict.fromkeys(e.track for e in call.events if e.kind in ON_DEVICE))
    return names | {s: "GPU" if len(streams) == 1 else f"GPU {s}" for s in streams}


def kernels(calls: Sequence[Call], device: str, arch: int = 0) -> tuple[ProfileRow, ...]:
    """The table by kernel, the dearest first; `arch` (90 for sm_90) is for the occupancy of kernels on a GPU."""
    rows = []
    for name in PHASES:
        with_it = [c for c in calls if name in c.marks]
        found = _grouped([busy(c, name, device) for c in with_it], lambda e: (short(e.name), e.kind == "copy"))
        spent = {key: _median_of(groups, lambda e: e.own_us) for key, groups in found.items()}
        whole = sum(spent.values())
        for (kernel, copies), groups in found.items():
            mine = spent[kernel, copies]
            rows.append(
                ProfileRow(
                    kernel, "copy" if copies else "kernel", name, statistics.median(map(len, groups)), mine,
                    _median_of(groups, lambda e: e.duration_us), mine / whole if whole else 0.0,
                    **_launch(next(e for group in groups for e in group).args, arch),
                )
            )  # fmt: skip
    return tuple(sorted(rows, key=lambda r: -r.self_us))


def _launch(args: Mapping, arch: int) -> dict:
    """What a kernel on a GPU takes, as the trace tells."""
    if "registers per thread" not in args:
        return {}
    block = tuple(int(n) for n in args.get("block", ()))
    registers, shared = int(args["registers per thread"]), int(args.get("shared memory", 0))
    threads = 1
    for n in block:
        threads *= n
    fit = occupancy(arch, threads=threads, registers=registers, shared=shared) if block else None
    return {
        "registers": registers, "shared_bytes": shared, "block": block,
        "grid": tuple(int(n) for n in args.get("grid", ())),
        "occupancy": fit.share if fit else 0.0, "limiter": fit.limiter if fit else "",
    }  # fmt: skip


def ops(calls: Sequence[Call]) -> tuple[ProfileRow, ...]:
    """The table by op, by its own time on the CPU; with the time of the kernels that it launched itself."""
    rows = []
    for name in PHASES:
        with_it = [c for c in calls if name in c.marks]
        if not with_it:
            continue
        inside = [[e for e in c.events if e.phase == name] for c in with_it]
        whole = statistics.median(c.marks[name][1] - c.marks[name][0] for c in with_it)
        kernels_of = _launched(inside)
        found = _grouped([[e for e in events if e.kind == "op"] for events in inside], lambda e: e.name)
        for op, groups in found.items():
            mine = _median_of(groups, _with_launches)
            rows.append(
                ProfileRow(
                    op, "op", name, statistics.median(map(len, groups)), mine,
                    _median_of(groups, lambda e: 0.0 if _inside_itself(e) else e.duration_us),
                    mine / whole if whole else 0.0,
                    _median_of(groups, kernels_of),
                )
            )  # fmt: skip
    return tuple(sorted(rows, key=lambda r: -(r.self_us + r.device_us)))


def _launched(inside: Sequence[Sequence[Event]]) -> Callable[[Event], float]:
    """The time on the device of the kernels that an op launched itself."""
    found: dict[int, float] = {}
    for e in (e for events in inside for e in events):
        if e.kind in ON_DEVICE and e.parent is not None:
            found[id(e.parent)] = found.get(id(e.parent), 0.0) + e.own_us
    return lambda e: found.get(id(e), 0.0)


def _with_launches(e: Event) -> float:
    """The own time of an op and of the calls of the CUDA runtime that it makes itself."""
    return e.own_us + sum(c.duration_us for c in e.children if c.kind == "launch")


def _inside_itself(e: Event) -> bool:
    above = e.parent
    while above is not None:
        if above.name == e.name:
            return True
        above = above.parent
    return False


def _grouped(of_calls: Sequence[Collection[Event]], key: Callable) -> dict[Any, list[list[Event]]]:
    """Events of one key, call by call: an empty list for a call that has none."""
    found: dict[Any, list[list[Event]]] = {}
    for i, events in enumerate(of_calls):
        for e in events:
            found.setdefault(key(e), [[] for _ in of_calls])[i].append(e)
    return found


def _median_of(groups: Sequence[Collection[Event]], value: Callable[[Event], float]) -> float:
    """The median over the calls of what their events come to together."""
    return statistics.median(sum(map(value, group)) for group in groups)


def short(name: str) -> str:
    """A kernel's name without what it returns and takes: its template arguments stay.

    >>> short("void at::native::vectorized_elementwise_kernel<4, Mul>(int, Mul, std::array<char*, 3>)")
    'vectorized_elementwise_kernel<4, Mul>'
    """
    if ("(" not in name and " " not in name) or name.startswith(("Memcpy", "Memset")):
        return name
    name = name.replace("(anonymous namespace)::", "")
    depth, cut = 0, len(name)
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0 and name.endswith((")", ") const", "]")):
            cut = i
            break
    head = name[:cut].removeprefix("void ").strip()
    return re.sub(r"^(?:at::native::|at::cuda::)+", "", head) or name
