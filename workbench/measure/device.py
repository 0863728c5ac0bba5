"""The few things that timing asks of a GPU, so that a test can stand in for it."""

from __future__ import annotations

import time
from typing import Any, Protocol

SPIN_HZ = 2.0e9  # `torch.cuda._sleep` counts cycles; a clock that is slower spins for longer, which does no harm


class Event(Protocol):
    """A point in the order of what a GPU does."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end_event: Any) -> float: ...


class Device(Protocol):
    """A GPU: events, a kernel that spins, one that empties the L2 cache (in `flush_s` seconds)."""

    flush_s: float

    def event(self) -> Event: ...
    def spin(self, seconds: float) -> None: ...
    def flush(self) -> None: ...
    def synchronize(self) -> None: ...
    def now(self) -> float: ...


class Cuda:
    """torch's current CUDA device. The buffer that empties its L2 is twice as large as that."""

    def __init__(self) -> None:
        import torch

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or (64 << 20)
        self._buffer = torch.empty(2 * self.l2_bytes, dtype=torch.int8, device="cuda")
        self.flush_s = 0.0
        self._measure_flush()

    def _measure_flush(self) -> None:
        for _ in range(3):
            self.flush()
        before, after = self.event(), self.event()
        before.record()
        for _ in range(10):
            self.flush()
        after.record()
        self.synchronize()
        self.flush_s = before.elapsed_time(after) * 1e-4

    def event(self) -> Event:
        import torch

        return torch.cuda.Event(enable_timing=True)

    def spin(self, seconds: float) -> None:
        import torch

        torch.cuda._sleep(int(min(seconds, 0.5) * SPIN_HZ))

    def flush(self) -> None:
        self._buffer.zero_()

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def now(self) -> float:
        return time.perf_counter()
