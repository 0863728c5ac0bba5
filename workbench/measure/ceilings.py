"""What this machine reaches at best, measured once and kept: the bandwidth of a copy, the rate of a matrix product."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import suppress

import torch

from .. import kept, toolchain
from ..errors import ToolchainError
from ..reports.measurement import COPY, MATRIX, Ceiling
from .clock import Call, CpuClock, GpuClock
from .device import Cuda

COPIED_BYTES = {"cpu": 128 << 20, "cuda": 1 << 30}  # far beyond any cache
SIDE = {"cpu": 1024, "cuda": 8192}
ROUNDS = 10
FILE = "ceilings.json"


def copy_bandwidth(device: str) -> Ceiling | None:
    """GB/s of `Tensor.copy_` within the device's memory: bytes read and bytes written, over the best of ten times.

    >>> copy_bandwidth("cuda")
    Ceiling(kind='copy bandwidth', value=4280.0, ...)

    None where there is no memory to measure it in: 2 GiB on a GPU.
    """
    try:
        return _kept(COPY, device, "", lambda: _copy(device))
    except (MemoryError, RuntimeError):
        return None


def matrix_rate(device: str, dtype: str) -> Ceiling | None:
    """GFLOP/s of `torch.mm` of large square matrices in a dtype; None where torch multiplies none, or has no memory."""
    try:
        return _kept(MATRIX, device, dtype, lambda: _multiply(device, getattr(torch, dtype)))
    except (MemoryError, RuntimeError, AttributeError):
        return None


@functools.cache
def event_overhead_s(device: str = "cuda") -> float:
    """What two events around a small kernel take besides the kernel itself; 0 where CUPTI does not tell."""
    from . import cupti

    found = _kept("event overhead", device, "", lambda: cupti.event_overhead_s() * 1e6)
    return found.value * 1e-6


def _copy(device: str) -> float:
    count = COPIED_BYTES[device] // 4
    x = torch.ones(count, device=device)
    y = torch.zeros(count, device=device)
    return 2 * COPIED_BYTES[device] / _best(Call("copy", lambda: y.copy_(x)), device) / 1e9


def _multiply(device: str, dtype: torch.dtype) -> float:
    n = SIDE[device]
    x, y = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty(n, n, device=device, dtype=dtype)
    return 2 * n**3 / _best(Call("mm", lambda: torch.mm(x, y, out=out)), device) / 1e9


def _best(call: Call, device: str) -> float:
    """The shortest of some times: a ceiling is what can be reached."""
    clock = CpuClock() if device == "cpu" else GpuClock(Cuda())
    with torch.no_grad():
        clock.warm(call)
        return min(took for (took,) in clock.sample([call], [[0]] * ROUNDS))


# ------------------------------------------------------------ kept on disk


def machine_key(device: str) -> str:
    """All that the ceilings follow from, as a word."""
    if device == "cpu":
        return f"cpu {toolchain.processor_name()} {torch.get_num_threads()} threads torch {torch.__version__}"
    return f"cuda {torch.cuda.get_device_name()} torch {torch.__version__} {torch.get_float32_matmul_precision()}"


def _kept(kind: str, device: str, dtype: str, measure: Callable[[], float]) -> Ceiling:
    """What was measured before; what a busy machine gave is measured once more by each process, and the best kept."""
    key = " | ".join([machine_key(device), kind, dtype])
    entry, best = kept.read(FILE).get(key), 0.0
    if isinstance(entry, dict) and isinstance(entry.get("value"), (int, float)) and entry["value"] > 0:
        best = float(entry["value"])
        if not entry.get("busy") or key in _measured:
            return Ceiling(kind, best, dtype, str(entry.get("day", "")), bool(entry.get("busy")))
    value = measure()
    found = Ceiling(kind, max(value, best), dtype, time.strftime("%Y-%m-%d"), device == "cpu" and bool(other_load()))
    if value > 0:
        _measured.add(key)
        with suppress(OSError, ToolchainError):  # a folder that cannot be written to: it is measured again
            kept.write(FILE, {**kept.read(FILE), key: {"value": found.value, "day": found.day, "busy": found.busy}})
    return found


_measured: set[str] = set()  # by this process


def other_load() -> str:
    """`"a load of 6.6 on 2"` cores, where other work shares them; "" where none does, or where nobody can tell."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"a load of {load:.1f} on {cores}" if load > 1.25 * cores else ""


def machine(device: str) -> str:
    """What a report says it ran on: `2 threads of Intel Xeon ...`, `NVIDIA H200`."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    count = torch.get_num_threads()
    return f"{count} thread{'s' * (count > 1)} of {toolchain.processor_name()}"
