"""What CUPTI, which torch's profiler stands on, says of how long kernels take: the yardstick of the events' clock."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import WorkbenchError
from .clock import TOGETHER, Call, GpuClock
from .device import Cuda

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
SPIN = "spin_kernel"  # of torch.cuda._sleep
QUEUES = 16  # of a few calls each
RISE_S = 0.05  # of work after which a GPU that was idle runs at its usual clocks
SMALL = 1 << 20  # floats: a kernel of about 5 us, as those for which the overhead of events matters


def durations_us(run: Callable[[], object]) -> list[tuple[str, float]]:
    """(name, microseconds) of all that the GPU did during `run`, in order; [] where CUPTI does not tell.

    >>> durations_us(lambda: torch.add(x, 1, out=y))
    [('void at::native::vectorized_elementwise_kernel<...', 4.9)]
    """
    return [(e["name"], float(e["dur"])) for e in _traced(run)]


def _traced(run: Callable[[], object]) -> list[Mapping[str, Any]]:
    import torch

    from .profile_run import session

    try:
        with session("cuda") as trace:
            run()
            torch.cuda.synchronize()
        return on_device(json.loads(trace())["traceEvents"])
    except (WorkbenchError, RuntimeError, ValueError):  # somebody profiles already, or may not
        return []


def on_device(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of a trace's events that took place on a GPU, in order."""
    return sorted((e for e in events if e.get("cat") in DEVICE), key=lambda e: e["ts"])


def spans_us(events: Sequence[Mapping[str, Any]], calls: int, cold: bool) -> list[float]:
    """From the first beginning to the last end of each of `calls` calls behind a kernel that spins.

    `cold`: something that empties the cache stands before each. [] where the events do not divide into that many.
    """
    spins = [i for i, e in enumerate(events) if SPIN in e["name"]]
    own = events[spins[-1] + 1 :] if spins else ()
    each, rest = divmod(len(own), calls)
    if rest or each <= cold:
        return []
    groups = [own[k + cold : k + each] for k in range(0, len(own), each)]
    return [max(e["ts"] + e["dur"] for e in group) - group[0]["ts"] for group in groups]


def overhead_of(clock: GpuClock, call: Call) -> float | None:
    """How much longer than CUPTI two events find this very call to take; None where CUPTI does not tell.

    It depends on the kernel: on an H200, 2.5 to 3.4 us around some of 2 to 8 us. CUPTI's start and its trace leave the
    device idle for a while, after which its clocks take milliseconds to rise: what is queued meanwhile does not count.
    """
    calls = [call] * clock.fitting([call])
    asked, watched = replace(clock), replace(clock)  # whether they keep ahead of the device says nothing of the samples
    before = _between(asked, call)
    seen = _traced(lambda: _risen(watched, calls))  # under CUPTI a launch costs more: it may not keep ahead
    spans = spans_us(seen, len(calls), clock.cold)
    if not watched.hidden or not spans:
        return None
    events = (before + _between(asked, call)) / 2
    return max(events - statistics.median(spans) * 1e-6, 0.0)


def _risen(clock: GpuClock, calls: Sequence[Call]) -> list[float]:
    """Seconds between the events of a batch, after others that keep the device busy until its clocks have risen.

    Was it queued ahead of the device? `clock.hidden` says so of this batch alone.
    """
    until = clock.device.now() + RISE_S
    while clock.device.now() < until:
        clock.between_events(calls)
    clock.hidden = True
    return clock.between_events(calls)


def _between(clock: GpuClock, call: Call) -> float:
    """Seconds between two events around the call, on a device whose clocks have risen."""
    calls = [call] * min(clock.fitting([call]), TOGETHER)
    _risen(clock, calls)
    return statistics.median(took for _ in range(QUEUES) for took in clock.between_events(calls))


def event_overhead_s() -> float:
    """How much longer than CUPTI two events find a small kernel to take, the L2 emptied; 0 if it does not tell."""
    import torch

    x, y = (torch.ones(SMALL, device="cuda") for _ in range(2))
    call = Call("add", lambda: torch.add(x, 1, out=y))
    clock = GpuClock(Cuda())
    clock.warm(call)
    return overhead_of(clock, call) or 0.0
