"""What CUPTI, which torch's profiler stands on, says of how long kernels take: the yardstick of the events' clock."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import WorkbenchError
from .clock import Call, GpuClock
from .device import Cuda

CALLS = 50
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
SMALL = 1 << 20  # floats: a kernel of about 5 us, as those for which the overhead of events matters


def durations_us(run: Callable[[], object]) -> list[tuple[str, float]]:
    """(name, microseconds) of all that the GPU did during `run`, in order; [] where CUPTI does not tell.

    >>> durations_us(lambda: torch.add(x, 1, out=y))
    [('void at::native::vectorized_elementwise_kernel<...', 4.9)]
    """
    import torch

    from .profile_run import session

    try:
        with session("cuda") as trace:
            run()
            torch.cuda.synchronize()
        return on_device(json.loads(trace())["traceEvents"])
    except (WorkbenchError, RuntimeError, ValueError):  # somebody profiles already, or may not
        return []


def on_device(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Those of a trace's events that took place on a GPU."""
    found = [e for e in events if e.get("cat") in DEVICE]
    return [(e["name"], float(e["dur"])) for e in sorted(found, key=lambda e: e["ts"])]


def event_overhead_s() -> float:
    """How much longer than CUPTI two events find a small kernel to take, the L2 cache emptied in both; at least 0."""
    import torch

    x, y = (torch.ones(SMALL, device="cuda") for _ in range(2))
    call = Call("add", lambda: torch.add(x, 1, out=y))
    device = Cuda()
    clock = GpuClock(device)
    clock.warm(call)
    events = [took for (took,) in clock.sample([call], [[0]] * CALLS)]

    def both() -> None:
        for _ in range(CALLS):
            device.flush()
            call.run()

    kernels = [us for name, us in durations_us(both) if "elementwise" in name and "FillFunctor" not in name]
    if len(kernels) < CALLS // 2:
        return 0.0
    return max(statistics.median(events) - statistics.median(kernels) * 1e-6, 0.0)
