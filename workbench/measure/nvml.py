"""What a GPU says of its clock, by NVML, the library behind nvidia-smi; nothing where it does not answer."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SM = 1  # NVML_CLOCK_SM
# Reasons that hold the clock below what the load could use (nvml.h, nvmlClocksEventReason*); idling is none of them.
REASONS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
AGAIN_S = 0.02
STEADY = 0.03  # a clock that moves by no more is called steady


@dataclass(frozen=True)
class Reading:
    """The clock of the multiprocessors in MHz, and why it is not higher."""

    mhz: int
    reasons: int = 0


class Meter:
    """Asks a GPU for its clock.

    >>> Meter().read()
    Reading(mhz=1980, reasons=0)
    """

    def __init__(self, library: Any = None, uuid: str = "", now: Callable[[], float] = time.perf_counter) -> None:
        self._library, self._handle, self._now = library, ctypes.c_void_p(), now
        self._last: Reading | None = None
        self._at = 0.0
        try:
            if library is None:
                self._library = ctypes.CDLL("libnvidia-ml.so.1")
                uuid = _uuid()
            bad = self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByUUID(
                uuid.encode(), ctypes.byref(self._handle)
            )
        except (OSError, AttributeError, RuntimeError):
            bad = True
        if bad:
            self._library = None

    def read(self) -> Reading | None:
        """The reading now, or of the last 20 ms: asked for between two queues of work, it must not leave the GPU idle.
        None where the GPU does not tell.
        """
        if self._library is None:
            return None
        if self._last is None or self._now() - self._at >= AGAIN_S:
            self._last, self._at = self._ask(), self._now()
        return self._last

    def _ask(self) -> Reading | None:
        mhz, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        if self._library.nvmlDeviceGetClockInfo(self._handle, SM, ctypes.byref(mhz)):
            return None
        if self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons)):
            reasons.value = 0
        return Reading(mhz.value, reasons.value)


def _uuid() -> str:
    import torch

    found = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return found if found.startswith(("GPU-", "MIG-")) else f"GPU-{found}"


def told(readings: Sequence[Reading | None]) -> tuple[str, str]:
    """(what a caption says of the clock, what a note warns of): "" where there is nothing to say.

    >>> told([Reading(1980), Reading(1980)])
    ('clock steady at 1,980 MHz', '')
    >>> told([Reading(1980), Reading(1410, 0x4)])
    ('clock 1,410 to 1,980 MHz', 'throttled: the clock fell to 1,410 MHz (power limit); times are those of ...')
    """
    known = [r for r in readings if r is not None]
    if not known:
        return "", ""
    low, high = min(r.mhz for r in known), max(r.mhz for r in known)
    reasons = 0
    for r in known:
        reasons |= r.reasons
    why = ", ".join(name for bit, name in REASONS.items() if reasons & bit)
    steady = high - low <= STEADY * high
    clock = f"clock steady at {high:,} MHz" if steady else f"clock {low:,} to {high:,} MHz"
    if why:
        fell = f"held at {high:,} MHz" if steady else f"fell to {low:,} MHz"
        return clock, f"throttled: the clock {fell} ({why}); times are those of a slowed device, ratios still hold"
    return clock, "" if steady else "the clock moved: times may be too long, ratios still hold"
