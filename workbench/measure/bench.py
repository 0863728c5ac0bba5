"""A benchmark from beginning to end: contestants on each case, judged, timed in turn, and what their times come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..check.quick import nothing_learnt
from ..check.sample import first_line
from ..errors import SchemaError
from ..reports.measurement import COPY, MATRIX, Bench, BenchRow, Ceiling, Work
from ..reports.report import Progress
from ..version import Version
from . import advice, bench_options, ceilings, memory, nvml, statistics
from .clock import Call, Clock, CpuClock, GpuClock
from .contestants import Contestant, Lending, by_slot
from .cupti import overhead_of
from .device import Cuda
from .extras import HELD_NOTE, Extras, extras, held_up
from .points import Point, points
from .prepare import NO_MEMORY, Prepared, Ready, prepare
from .timing import LEAST_LONG, Timed, compare


@dataclass
class _Run:
    """A benchmark under way. What it has found so far stays when it is interrupted."""

    op: Any
    device: str
    clock: Clock
    budget_s: float
    of: int
    tell: Callable[[Progress], None]
    now: Callable[[], float]
    read: Callable[[], nvml.Reading | None]
    rows: list[BenchRow] = field(default_factory=list)
    work: dict[tuple[str, str, str], Work] = field(default_factory=dict)
    ceilings: dict[tuple[str, str], Ceiling | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    noises: list[tuple[float, str]] = field(default_factory=list)
    readings: list[nvml.Reading | None] = field(default_factory=list)
    spent_s: float = 0.0
    stopped: str = ""  # where an interrupt came among samples that are kept
    done: int = 0
    start: float = 0.0

    def point(self, point: Point, slot: str, entered: Sequence[Contestant]) -> None:
        """All contestants on one point."""
        self.say(f"{point.label}: results first")
        try:
            case = point.make()
            memory.check(memory.needs(case), self.device)
            prepared = prepare(self.op, entered, case, slot, self.device)
        except (memory.NoRoomError, MemoryError, torch.OutOfMemoryError, SchemaError, RuntimeError) as error:
            self.rows += [_row(point, slot, c, status="failed", detail=_unfit(error)) for c in entered[:1]]
            return
        self.notes += prepared.notes
        self.work[point.name, point.dtype, slot] = prepared.work
        ready = self.warm(point, prepared.ready)
        try:
            self.rows += self.timed(point, slot, replace(prepared, ready=ready))
        except Exception as error:  # of what is timed: the other points are timed all the same
            ready = _stopped(ready, error)
            self.rows += [_row(point, slot, r.contestant, status=r.status, detail=r.detail) for r in ready]

    def warm(self, point: Point, ready: Sequence[Ready]) -> tuple[Ready, ...]:
        """All that are to be timed, called a few times; one that raises then is out, and the op takes all with it."""
        found = list(ready)
        for i, r in enumerate(ready):
            if r.call is None:
                continue
            self.say(f"{point.label}: warming up {r.call.name}")
            try:
                with torch.no_grad():
                    self.clock.warm(r.call)
            except Exception as error:
                if i == 0:
                    return _stopped(ready, error)
                found[i] = Ready(r.contestant, None, "failed", _unfit(error))
        return tuple(found)

    def timed(self, point: Point, slot: str, prepared: Prepared) -> list[BenchRow]:
        """The rows of a point: those that agree are timed against each other."""
        calls = [r.call for r in prepared.ready if r.call is not None]
        found: dict[str, tuple[Timed, int]] = {}
        costs: dict[str, Extras] = {}
        with torch.no_grad():
            if calls:
                timed = self.compared(point, calls)
                found = {c.name: (timed, i) for i, c in enumerate(calls)}
                self.noises.append(advice.noise(calls[0].name, point.label, timed.of(0), self.device))
            for call in [] if self.stopped else calls:
                costs[call.name] = extras(call, self.clock, self.device)
        rows: list[BenchRow] = []
        for ready in prepared.ready:
            c = ready.contestant
            if c.name not in found:
                rows.append(_row(point, slot, c, status=ready.status, detail=ready.detail))
                continue
            cost = costs.get(c.name, Extras())
            known = {**_times(*found[c.name]), "peak_mb": cost.peak_mb, "launch_us": cost.launch_us}
            known["detail"] = held_up(known["time_us"], cost.alone_us)
            rows.append(self.figures(_row(point, slot, c, **known), prepared.work, point.dtype))
        return _honest(rows)

    def compared(self, point: Point, calls: Sequence[Call]) -> Timed:
        """The samples of a point; an interrupt keeps those so far, if they are enough for an interval."""
        timed = Timed(tuple(c.name for c in calls), statistics.RELEVANT[self.device])
        before = self.now()
        try:
            compare(
                self.clock, calls, timed, self.left_s(), now=self.now,
                tell=lambda t: self.standing(point, t), seed=self.done,
            )  # fmt: skip
        except KeyboardInterrupt:
            if len(timed.rounds) < LEAST_LONG:
                raise
            self.stopped = f", and in the middle of {point.label}"
        finally:
            self.spent_s += self.now() - before
        return timed

    def figures(self, row: BenchRow, todo: Work, dtype: str) -> BenchRow:
        """Rates, and the share of the ceiling that is nearer."""
        seconds = row.time_us * 1e-6
        rates = {COPY: todo.bytes / seconds / 1e9, MATRIX: todo.flops / seconds / 1e9}
        shares = [
            (rates[kind] / c.value, kind)
            for kind in (COPY, MATRIX)
            if rates[kind] > 0 and (c := self.ceiling(kind, dtype if kind == MATRIX else "")) is not None
        ]
        share, kind = max(shares, default=(0.0, ""))
        return replace(row, gb_per_s=rates[COPY], gflop_per_s=rates[MATRIX], share=share, ceiling=kind)

    def ceiling(self, kind: str, dtype: str) -> Ceiling | None:
        if (kind, dtype) not in self.ceilings:
            self.say(f"measuring this machine's {kind}")
            measure = ceilings.copy_bandwidth if kind == COPY else ceilings.matrix_rate
            found = measure(*(self.device, dtype)[: 1 if kind == COPY else 2])
            if found is None and kind == COPY:
                self.notes.append(f"the {kind} could not be measured, for want of memory: no share of it is told")
            self.ceilings[kind, dtype] = found
        return self.ceilings[kind, dtype]

    def left_s(self) -> float:
        """What this point may take: an even part of what is left, points that were quick leaving theirs to the rest."""
        return max(self.budget_s - self.spent_s, 0.0) / max(self.of - self.done, 1)

    def standing(self, point: Point, timed: Timed) -> None:
        """Told between batches, when the device has just been busy: its clock is that of the samples."""
        self.readings.append(self.read())
        self.say(f"{point.label}: {len(timed.rounds)} samples of {len(timed.names)}")

    def say(self, at: str) -> None:
        self.tell(Progress(self.op.qualname, at, self.done, self.of, self.now() - self.start))


def bench(
    op,
    against: object = None,
    cases: object = None,
    sweep: object = None,
    *,
    backward: bool | None = None,
    device: str | None = None,
    cold: bool = True,
    budget: float | None = None,
    lend: Callable[[Version], Lending],
    tell: Callable[[Progress], None] = lambda told: None,
    now: Callable[[], float] = time.perf_counter,
    clock: Clock | None = None,
) -> Bench:
    """What `Op.bench` says; `lend` puts a former version into its slot, `clock` and `now` are for tests.

    >>> bench(rmsnorm, lend=partial(Lent, rmsnorm)).rows[1].verdict
    'FASTER'
    """
    from torch._functorch import config as functorch

    device = bench_options.device_for(op, device)
    where = points(op, cases, sweep)
    entered = by_slot(op, against, bench_options.slots(op, backward, device), device, lend)
    tasks = [(p, s) for s in entered for p in where]
    allowed = bench_options.budget(budget, len(tasks), sweep is not None)
    overhead = ceilings.event_overhead_s() if device == "cuda" and clock is None else 0.0
    clock = clock or (GpuClock(Cuda(), cold, overhead, overhead_of) if device == "cuda" else CpuClock(now))
    read = nvml.Meter().read if device == "cuda" else _no_reading
    run = _Run(op, device, clock, allowed, len(tasks), tell, now, read, start=now())
    stopped = False
    with ExitStack() as stack:
        stack.enter_context(nothing_learnt(op))
        stack.enter_context(functorch.patch(donated_buffer=False))  # a graph is pulled back many times
        for lent in (c.lent for found in entered.values() for c in found if c.lent is not None):
            stack.callback(lent.leave)
        try:
            for point, slot in tasks:
                run.point(point, slot, entered[slot])
                if stopped := bool(run.stopped):
                    break
                run.done += 1
        except KeyboardInterrupt:
            stopped = True
    swept = tuple(dict.fromkeys(n for p in where for n, _ in p.values))
    return _report(run, swept, stopped, op.runs("forward", device), cold)


def _report(run: _Run, swept: tuple[str, ...], stopped: bool, version: Version, cold: bool) -> Bench:
    clock, warning = nvml.told(run.readings)
    notes = [warning, *_noisy(run), *run.notes]
    if any(r.timed and r.detail for r in run.rows):
        notes.append(HELD_NOTE)
    if stopped:
        notes.insert(0, f"stopped by an interrupt after {run.done} of {run.of}{run.stopped}")
    if any(c.busy for c in run.ceilings.values() if c is not None):
        notes.append("ceilings were measured while other work shared the cores: shares of them are too large")
    if not run.clock.hidden:
        notes.append("launches could not be queued ahead of the device: times include waiting for the CPU")
    found = Bench(
        op=run.op.qualname,
        device=run.device,
        machine=ceilings.machine(run.device),
        version=f"v{version.number}" if version.number else "reference",
        rows=tuple(run.rows),
        sweep=swept,
        cold=cold and run.device == "cuda",
        work=tuple(run.work.items()),
        ceilings=tuple(c for c in run.ceilings.values() if c is not None),
        seconds=run.now() - run.start,
        clock=clock,
        notes=tuple(dict.fromkeys(n for n in notes if n)),
        stopped=stopped,
    )
    return replace(found, advice=advice.advice(found))


def _noisy(run: _Run) -> list[str]:
    """The worst of what is to be said of noise, and on a CPU of other work."""
    worst = max(run.noises, default=(0.0, ""))[1]
    found = [worst] if worst else []
    if run.device == "cpu" and worst and (load := ceilings.other_load()):
        found.append(f"other work shares the cores: {load}")
    return found


def _row(point: Point, slot: str, c: Contestant, **known: Any) -> BenchRow:
    return BenchRow(point.name, point.dtype, slot, c.name, own=c.own, values=point.values, **known)


def _times(timed: Timed, number: int) -> dict[str, Any]:
    seconds = timed.seconds(number)
    found: dict[str, Any] = {
        "time_us": seconds.mid * 1e6, "low_us": seconds.low * 1e6, "high_us": seconds.high * 1e6,
        "samples": len(timed.rounds), "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0,
    }  # fmt: skip
    if number:
        ratio = timed.log_ratio(number).exp()
        found |= {"ratio": ratio.mid, "ratio_low": ratio.low, "ratio_high": ratio.high}
        found["verdict"] = timed.verdict(number)
    return found


def _honest(rows: list[BenchRow]) -> list[BenchRow]:
    """No row is FASTER or SLOWER where its time, or the op's, is that of threads which wait."""
    own_held = any(r.own and r.timed and r.detail for r in rows)
    claims = (statistics.FASTER, statistics.SLOWER)
    return [
        replace(r, verdict=statistics.UNCLEAR) if r.verdict in claims and (own_held or r.detail) else r for r in rows
    ]


def _stopped(ready: Sequence[Ready], error: Exception) -> tuple[Ready, ...]:
    """What was to be timed until something raised: the first says why, the others that they were not."""
    first = next(r.contestant.name for r in ready if r.call is not None)
    found = []
    for r in ready:
        if r.call is not None and r.contestant.name == first:
            r = Ready(r.contestant, None, "failed", _unfit(error))
        elif r.call is not None:
            r = Ready(r.contestant, None, "skip", f"not timed: {first} was not")
        found.append(r)
    return tuple(found)


def _unfit(error: BaseException) -> str:
    said = getattr(error, "message", "") or first_line(error) or type(error).__name__
    if isinstance(error, memory.NoRoomError):
        return said
    lacks = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in said
    return f"{NO_MEMORY}: {said}" if lacks else said


def _no_reading() -> nvml.Reading | None:
    return None
