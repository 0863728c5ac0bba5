"""A rough time of a version right after it was installed: a few calls, 50 ms at most, no verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..case import Case
from ..inputs import fresh, moved, tensors_in
from ..version import Version

BUDGET_S = 0.05
CALLS_AT_MOST = 20
BYTES_AT_MOST = 1 << 30  # inputs of a bench case that are kept for the next edit


@dataclass(frozen=True)
class Rough:
    us: float
    case: str
    fault: str = ""  # why it was not timed: what the call would do to this process


@dataclass
class Kept:
    """A case to be timed, its inputs on a device, and these as who tries kernels takes them."""

    case: Case
    values: dict
    parcel: Any = None


def time_us(
    op,
    version: Version,
    clock: Callable[[], float] = time.perf_counter,
    fault: Callable[[Kept], str] = lambda kept: "",
) -> Rough | None:
    """The best of a few calls of the op on its bench case, else on its largest case; None when it has no case.

    The clock is wall time around one call on a CPU, events around it on a GPU. A mutating op keeps mutating its own
    copies. `fault` is asked first whether the call does what none may.
    """
    if version.slot != "forward" or getattr(version.kernel, "unrunnable", False):
        return None
    kept = _inputs(op, version.device)
    if kept is None:
        return None
    if said := fault(kept):
        return Rough(0.0, kept.case.name, said)
    timed = _on_gpu if version.device == "cuda" else clock_around
    args, kwargs = op.definition.split(list(kept.values.values()))
    best, spent = float("inf"), 0.0
    with torch.no_grad():
        if version.device == "cuda" and not _warmed(op, args, kwargs):
            return None
        for _ in range(CALLS_AT_MOST):
            try:
                took = timed(lambda: op.forward_op(*args, **kwargs), clock)
            except RuntimeError:  # a bench case need not be one that the kernel takes
                return None
            best, spent = min(best, took), spent + took
            if spent + took > BUDGET_S:
                break
    return Rough(best * 1e6, kept.case.name)


def _warmed(op, args: list, kwargs: dict) -> bool:
    """The first call on a GPU loads the kernel, and may compile it for these sizes: it says nothing of the others."""
    try:
        op.forward_op(*args, **kwargs)
    except RuntimeError:
        return False
    return True


def clock_around(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds of one call by that clock."""
    before = clock()
    call()
    return clock() - before


def _on_gpu(call: Callable[[], object], _: Callable[[], float]) -> float:
    """Seconds of one call on the device, between two events on the current stream."""
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    call()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) * 1e-3


def _inputs(op, device: str) -> Kept | None:
    """Kept on the op while they are small enough."""
    if device in op.rough_inputs:
        return op.rough_inputs[device]
    cases = op.case_list(bench=True)
    if not cases:
        return None
    bench = [c for c in cases if c.bench]
    chosen = bench[0] if bench else max(cases, key=lambda c: _bytes(c.bound(op.schema)))
    found = Kept(chosen, moved(fresh(chosen.bound(op.schema)), device))
    if _bytes(found.values) <= BYTES_AT_MOST:
        op.rough_inputs[device] = found
    return found


def _bytes(values: dict) -> int:
    return sum(t.numel() * t.element_size() for t in tensors_in(values))
