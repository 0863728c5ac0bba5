"""What a call costs besides its time, and whether that time is its own: memory, launches, threads that wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from . import work
from .clock import Call, Clock, CpuClock, GpuClock, turn

LAUNCHES = 20
ALONE_CALLS, ALONE_S = 10, 0.1  # at most, on one thread
HELD_UP = 3.0  # times as long on several threads as on one
HELD_NOTE = (
    "held up: what takes several times as long on all threads as on one waits for cores that other work holds; "
    "its times, and verdicts on them, say nothing of the code"
)


@dataclass(frozen=True)
class Extras:
    """`alone_us` is the best time on one thread, 0 where there is but one, or the device is a GPU."""

    peak_mb: float = 0.0
    launch_us: float = 0.0
    alone_us: float = 0.0


def extras(call: Call, clock: Clock, device: str) -> Extras:
    """Of one contestant, after it was timed."""
    with turn(call):
        peak = work.peak_mb(call.run, device)
        if isinstance(clock, GpuClock):
            return Extras(peak, launch_us=launch_us(call.run, clock))
        return Extras(peak, alone_us=alone_us(call.run, clock.now) if isinstance(clock, CpuClock) else 0.0)


def held_up(time_us: float, alone_us: float) -> str:
    """Why a time is not to be believed: threads that wait for a core are slower together than one is alone.

    >>> held_up(160_000, 210)
    'held up: 210 us on one thread'
    """
    if not 0 < HELD_UP * alone_us < time_us:
        return ""
    alone = f"{alone_us:.3g} us" if alone_us < 1000 else f"{alone_us / 1000:,.3g} ms"
    return f"held up: {alone} on one thread"


def alone_us(run: Callable[[], object], now: Callable[[], float] = time.perf_counter) -> float:
    """The best of a few calls with one thread for torch's own loops, in microseconds; 0 where there is but one."""
    if torch.get_num_threads() < 2:
        return 0.0
    best, start = float("inf"), now()
    with one_thread():
        for i in range(ALONE_CALLS):
            before = now()
            run()
            best = min(best, now() - before)
            if i and now() - start > ALONE_S:  # the first may compile for one thread
                break
    return best * 1e6


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread for a while."""
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def launch_us(run: Callable[[], object], clock: GpuClock) -> float:
    """What the CPU is busy with at one call, in microseconds: the least of three short queues."""
    device, best = clock.device, float("inf")
    for _ in range(3):
        device.synchronize()
        before = device.now()
        for _ in range(LAUNCHES):
            run()
        best = min(best, (device.now() - before) / LAUNCHES)
    device.synchronize()
    return best * 1e6
