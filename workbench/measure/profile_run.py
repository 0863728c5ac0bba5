"""torch.profiler around calls: one session at a time, cleaned up whatever happens, and the same calls without it."""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from .. import settings
from ..errors import WorkbenchError
from . import teardown
from .profile_figures import Undisturbed
from .profile_trace import MARK, PHASES

RUNNING = (
    "a torch profiler is running already, {where}, and torch has room for one at a time. "
    "It goes on undisturbed: end it, then profile again"
)
QUIET = ("KINETO_LOG_LEVEL", "99")  # or each session writes lines below the cell
WARM_CALLS, LEAST_CALLS, MOST_CALLS = 2, 3, 20
BUDGET_S = 0.5  # for the calls in a session, and for those without one
CALIBRATION_CALLS = 200

Phases = Callable[[Callable[[str], Any]], None]  # makes one call; enters `mark(phase)` around each of its phases


def refuse_a_second() -> None:
    """Raise WorkbenchError where a torch profiler runs, or is about to: a second one would end it, or the process.

    Garbage goes first: a profiler in it is none, and a tensor in it that a session frees makes torch write a warning.
    """
    from torch.autograd import profiler as autograd

    gc.collect()
    if torch.autograd._profiler_enabled() or getattr(autograd, "_is_profiler_enabled", False):
        raise WorkbenchError(RUNNING.format(where="in this process"))
    waiting = {torch.profiler.ProfilerAction.WARMUP, torch.profiler.ProfilerAction.RECORD}
    for each in gc.get_objects():
        if type(each) is torch.profiler.profile and each.current_action in waiting and _entered(each):
            raise WorkbenchError(RUNNING.format(where="warming up by its schedule"))


def _entered(profiler: Any) -> bool:
    inner = getattr(profiler, "profiler", None)
    return bool(inner is not None and inner.entered and inner.kineto_results is None)


@contextmanager
def session(device: str = "cpu") -> Iterator[Callable[[], bytes]]:
    """torch.profiler for as long as the block runs; what it gives back reads the trace afterwards, as json.

    >>> with session() as trace:
    ...     op(x)
    >>> json.loads(trace())["traceEvents"]

    An interrupt, or an error in the block, leaves no profiler behind. Raises WorkbenchError where one runs already.
    """
    refuse_a_second()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    begin, end = (teardown.begin, teardown.end) if device == "cuda" else (nullcontext, nullcontext)
    with settings.variable(*QUIET):
        made = torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True)
        try:
            with undivided(), begin():
                made.start()
            yield lambda: _exported(made)
        finally:
            with undivided(), end():
                _end(made)


def _end(profiler: torch.profiler.profile) -> None:
    from torch.autograd import profiler as autograd

    try:
        if torch.autograd._profiler_enabled():
            profiler.stop()
    finally:
        if torch.autograd._profiler_enabled():  # its own stop, or its start, failed half way
            torch.autograd._disable_profiler()
        if getattr(autograd, "_is_profiler_enabled", False):
            autograd._set_is_profiler_enabled(False)


def _exported(profiler: torch.profiler.profile) -> bytes:
    with tempfile.TemporaryDirectory(prefix="workbench-profile-") as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, "rb") as file:
            return file.read()


@contextmanager
def undivided() -> Iterator[None]:
    """An interrupt that comes inside of the block is raised at its end: torch's profiler is never half on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple] = []
    former = signal.getsignal(signal.SIGINT)
    if former is None:  # set by something that is not Python
        yield
        return
    signal.signal(signal.SIGINT, lambda *what: came.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        if came and callable(former):
            former(*came[0])


def traced(call: Phases, count: int, device: str = "cpu", told: Callable[[int], None] = lambda _: None) -> bytes:
    """The trace of `count` calls and one before them, which a profiler that has just begun makes slow."""
    with session(device) as trace:
        for i in range(count + 1):
            told(i)
            call(lambda phase: record_function(MARK + phase))
            _settle(device)
    return trace()


def alone(call: Phases, device: str = "cpu", budget_s: float = BUDGET_S) -> tuple[dict[str, Undisturbed], int]:
    """Each phase with no profiler running, and how many calls fit into the budget.

    Wall time is around each phase; on a GPU it ends when the GPU is done.
    """
    for _ in range(WARM_CALLS):
        call(lambda _: _Clock({}, "", device))
    walls: dict[str, list[tuple[float, float]]] = {}
    begin = time.perf_counter()
    spent = 0.0
    while len(walls.get(PHASES[0], ())) < LEAST_CALLS or spent < min(budget_s, 0.2):
        call(lambda phase: _Clock(walls, phase, device))
        spent = time.perf_counter() - begin
        if spent > 4 * budget_s:
            break
    found = {}
    for phase, pairs in walls.items():
        wall, cpu = (sum(column) for column in zip(*pairs, strict=True))
        found[phase] = Undisturbed(statistics.median(w for w, _ in pairs) * 1e6, cpu / wall if wall else 0.0)
    each = spent / max(len(walls[PHASES[0]]), 1)
    return found, max(min(MOST_CALLS, int(budget_s / max(each, 1e-9))), LEAST_CALLS if spent <= 4 * budget_s else 1)


class _Clock:
    """Around one phase: seconds of wall time, and of the CPU time of all threads."""

    def __init__(self, walls: dict[str, list[tuple[float, float]]], phase: str, device: str) -> None:
        self.walls, self.phase, self.device = walls, phase, device

    def __enter__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        _settle(self.device)
        took = time.perf_counter() - self.wall
        if self.phase:
            self.walls.setdefault(self.phase, []).append((took, time.process_time() - self.cpu))


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@functools.cache
def event_cost_us() -> float:
    """What the profiler adds to the CPU's time for each op: the same small ops with and without it, measured once."""
    x = torch.ones(1)

    def took() -> float:
        begin = time.perf_counter()
        for _ in range(CALIBRATION_CALLS):
            torch.neg(x)
        return time.perf_counter() - begin

    took()
    without = min(took() for _ in range(5))
    with session():
        took()
        within = min(took() for _ in range(5))
    return max(within - without, 0.0) / CALIBRATION_CALLS * 1e6


def read(trace: bytes) -> dict:
    """The trace as data. WorkbenchError where torch wrote something that is no JSON."""
    try:
        return json.loads(trace)
    except ValueError as error:
        raise WorkbenchError(f"torch's trace cannot be read ({error}); nothing was profiled") from None
