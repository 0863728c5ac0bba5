"""The clocks that a benchmark stands on: what a call takes on a CPU, and on a GPU by events.

A clock takes calls in a given order and returns seconds; how many are taken, and what follows from them, is in
`timing`. `GpuClock` takes its GPU as an argument, so that tests can hand it one with a clock of their own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from .device import Device

LEAST = 12  # rounds before the first look at them
BLOCK_S = 0.0003  # calls in a row on a CPU that the clock is read around: thousands of its own steps
SAMPLE_S, BLOCKS, LONG_S = 0.005, 8, 0.2  # of which the quickest of several is a sample; one of a call this long
STUCK_S = 0.05  # a sample that takes longer ends with the block it is in
MUTATING = 16  # calls in a row that start from what the one before left behind
WARM_S, WARM_CALLS = 0.02, 2
BATCH_S = 0.02  # of work on the device that is queued at once
QUEUED, LAUNCH_S = 500, 3e-6  # commands queued at once (about 1,000 fit), and what one of them costs the CPU
MOST_QUEUED = 64  # times a call is queued at once
# What two events take around the same call differs from one queue to the next, by half a microsecond on an H200.
TOGETHER, LEAST_SHORT = 4, 48  # rounds of one queue, and of a short call altogether
PADDING_S = 100e-6
SHORT_S = 50e-6  # what two events take around a call differs by 0.9 us: of a longer one, less than 2 %


@dataclass(frozen=True)
class Call:
    """One contestant as a clock sees it: `run` once; `before` each sample; `enter` and `leave` around its turns."""

    name: str
    run: Callable[[], object]
    before: Callable[[], object] | None = None
    enter: Callable[[], object] | None = None
    leave: Callable[[], object] | None = None


class Clock(Protocol):
    """Takes samples of calls."""

    hidden: bool  # was the cost of launching hidden behind work that was queued before?

    def warm(self, call: Call) -> None: ...
    def rounds(self, calls: Sequence[Call]) -> int: ...
    def least(self, calls: Sequence[Call]) -> int: ...
    def sample(self, calls: Sequence[Call], orders: Sequence[Sequence[int]]) -> list[list[float]]: ...


@contextmanager
def turn(call: Call) -> Iterator[None]:
    """What a contestant needs around its turn, such as being swapped into its slot."""
    if call.enter is not None:
        call.enter()
    try:
        if call.before is not None:
            call.before()
        yield
    finally:
        if call.leave is not None:
            call.leave()


@contextmanager
def no_garbage() -> Iterator[None]:
    """Python's collector off for a while: it would run within somebody's sample."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _in_turns(calls: Sequence[Call]) -> bool:
    return any(c.enter is not None or c.before is not None for c in calls)


@dataclass
class CpuClock:
    """Wall time of calls, as many in a row as make a block long enough for the clock.

    A sample is the quickest of up to eight blocks: what disturbs a process only ever adds (Chen and Revels, 2016), and
    among short blocks one is left alone even where other work shares the cores.
    """

    now: Callable[[], float] = time.perf_counter
    inner: dict[str, tuple[int, int]] = field(default_factory=dict)  # (blocks, calls in each) by contestant
    hidden: bool = True

    def warm(self, call: Call) -> None:
        """A few calls, at least 20 ms of them, one of a long one; then how many make a sample."""
        with turn(call):
            start, count, best = self.now(), 0, float("inf")
            while self.now() - start < (WARM_S if count >= WARM_CALLS else LONG_S):
                before = self.now()
                call.run()
                best = min(best, self.now() - before)
                count += 1
        block = max(1, round(BLOCK_S / max(best, 1e-8)))
        if call.before is not None:  # halved hundreds of times, numbers get denormal, and a CPU slow
            block = min(block, MUTATING)
        least = 2 if best < LONG_S else 1
        self.inner[call.name] = (max(least, min(BLOCKS, int(SAMPLE_S / (block * max(best, 1e-8))))), block)

    def rounds(self, calls: Sequence[Call]) -> int:
        return 1

    def least(self, calls: Sequence[Call]) -> int:
        return LEAST

    def sample(self, calls: Sequence[Call], orders: Sequence[Sequence[int]]) -> list[list[float]]:
        """Seconds a call: one list for each round, by contestant."""
        found = []
        with no_garbage():
            for order in orders:
                took = [0.0] * len(calls)
                for i in order:
                    blocks, count = self.inner[calls[i].name]
                    with turn(calls[i]):
                        took[i] = self._quickest(calls[i], blocks, count)
                found.append(took)
        return found

    def _quickest(self, call: Call, blocks: int, count: int) -> float:
        """Of the blocks of a sample, fewer where they take far longer than was to be expected."""
        best, end = float("inf"), self.now() + STUCK_S
        for i in range(blocks):
            if i and call.before is not None:
                call.before()
            best = min(best, self._block(call, count))
            if self.now() > end:
                break
        return best

    def _block(self, call: Call, count: int) -> float:
        run = call.run
        before = self.now()
        for _ in range(count):
            run()
        return max((self.now() - before) / count, 1e-9)


@dataclass
class GpuClock:
    """Time between two events around each call, while the launches of a whole batch wait behind a kernel that spins.

    So nothing that the CPU does is in it. `cold` empties the L2 cache before each call, as in a model, where other
    kernels come in between. What two events take by themselves is subtracted: for a kernel of 5 us it is a third.
    `overhead_s` is what they take as a rule; `compared`, for a short call, what they take around that very one.
    """

    device: Device
    cold: bool = True
    overhead_s: float = 0.0
    compared: Callable[[GpuClock, Call], float | None] | None = None
    hidden: bool = True
    takes: dict[str, tuple[float, float]] = field(default_factory=dict)  # (device, enqueue) seconds by contestant
    overheads: dict[str, float] = field(default_factory=dict)  # seconds by contestant

    def warm(self, call: Call) -> None:
        """Three calls (the first may load or compile), then one that tells how long it takes."""
        self.overheads.pop(call.name, None)  # of the same contestant on another case
        with turn(call):
            for _ in range(3):
                call.run()
            self.device.synchronize()
            self.takes[call.name] = self._once(call)
            if self.compared is not None and self.takes[call.name][0] < SHORT_S and call.before is None:
                found = self.compared(self, call)
                if found is not None:
                    self.overheads[call.name] = found

    def rounds(self, calls: Sequence[Call]) -> int:
        """How many rounds are queued at once: not so many that the queue is full or the user waits."""
        if _in_turns(calls):
            return 1  # what comes before a turn must not meet work of the turn before
        return min(self.fitting(calls), TOGETHER)

    def least(self, calls: Sequence[Call]) -> int:
        """How many rounds there are before the first look at them: of short calls those of many queues."""
        short = not _in_turns(calls) and any(self.takes[c.name][0] < SHORT_S for c in calls)
        return LEAST_SHORT if short else LEAST

    def fitting(self, calls: Sequence[Call]) -> int:
        """How many times all of these can be queued at once."""
        device = sum(self.takes[c.name][0] for c in calls)
        flush = self.device.flush_s * len(calls) if self.cold else 0.0
        commands = sum(4 + self.takes[c.name][1] / LAUNCH_S for c in calls)  # two events, a flush, and its launches
        return max(1, min(MOST_QUEUED, int(BATCH_S / (device + flush + 1e-9)), int(QUEUED / commands)))

    def sample(self, calls: Sequence[Call], orders: Sequence[Sequence[int]]) -> list[list[float]]:
        """Device seconds a call: one list for each round, by contestant."""
        with no_garbage():
            if _in_turns(calls):
                return [self._apart(calls, order) for order in orders]
            flat = [(r, i) for r, order in enumerate(orders) for i in order]
            seconds = self._batch([calls[i] for _, i in flat])
        found = [[0.0] * len(calls) for _ in orders]
        for (r, i), took in zip(flat, seconds, strict=True):
            found[r][i] = took
        return found

    def _apart(self, calls: Sequence[Call], order: Sequence[int]) -> list[float]:
        took = [0.0] * len(calls)
        for i in order:
            count = 1 if calls[i].before is not None else self.fitting([calls[i]])
            with turn(calls[i]):
                self.device.synchronize()
                seconds = self._batch([calls[i]] * count)
                self.device.synchronize()
            took[i] = sorted(seconds)[len(seconds) // 2]
        return took

    def _once(self, call: Call) -> tuple[float, float]:
        start = self.device.now()
        call.run()
        enqueue = self.device.now() - start
        self.device.synchronize()
        (seconds,) = self._batch([call], enqueue)
        return seconds, enqueue

    def _batch(self, calls: Sequence[Call], enqueue: float | None = None) -> list[float]:
        """Device seconds of each of them, without what the events take."""
        seconds = self.between_events(calls, enqueue)
        less = [self.overheads.get(c.name, self.overhead_s) for c in calls]
        return [max(took - overhead, 1e-9) for took, overhead in zip(seconds, less, strict=True)]

    def between_events(self, calls: Sequence[Call], enqueue: float | None = None) -> list[float]:
        """Queue all of them behind a spinning kernel; if the queue ran dry meanwhile, once more behind a longer one."""
        d = self.device
        if enqueue is None:
            enqueue = sum(self.takes[c.name][1] for c in calls)
        spin = 2 * (enqueue + 4 * LAUNCH_S * len(calls)) + PADDING_S
        for _ in range(3):
            d.spin(spin)
            marks = []
            first = d.event()
            first.record()
            start = d.now()
            for call in calls:
                if self.cold:
                    d.flush()
                before, after = d.event(), d.event()
                before.record()
                call.run()
                after.record()
                marks.append((before, after))
            waited = first.query()  # the device came to the first call before the last was queued
            took = d.now() - start
            d.synchronize()
            if not waited:
                break
            spin = 2 * took + PADDING_S
        self.hidden = self.hidden and not waited
        return [b.elapsed_time(a) * 1e-3 for b, a in marks]
