"""CUPTI begins with a session of torch's profiler on a GPU and ends with it, whoever has profiled before.

Left alone it stays, and each launch costs twice as much, for good. torch ends it where TEARDOWN_CUPTI=1, from a thread
(CuptiActivityApi::teardownContext of kineto) that waits until some call of CUDA returns. It asks for the variable at
two points, and is wrong at both:

- When a session begins, so as to clean up after one that ended without: the next call of CUDA then ends the CUPTI of
  the session that has just begun, which sees nothing. So there it is told not to (`begin`).
- When a session ends. Where no call of CUDA follows, the process hangs at its exit, since the condition is destroyed
  on which the thread waits; a session that begins meanwhile may end the process. So that call is made (`end`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .. import settings

VARIABLE = "TEARDOWN_CUPTI"
THREADS = "/proc/self/task"
LIMIT_S = 1.0  # torch's thread ends after some milliseconds; another one that began just then may stay
PAUSE_S = 2e-4


@contextmanager
def begin() -> Iterator[None]:
    """Around the start of a session on a GPU.

    >>> with begin():
    ...     profiler.start()
    """
    call_cuda()  # ends what a session of somebody else may have left waiting
    with settings.variable(VARIABLE, "0"):
        yield


@contextmanager
def end() -> Iterator[None]:
    """Around the stop of a session on a GPU: afterwards CUPTI is gone.

    >>> with end():
    ...     profiler.stop()
    """
    before = threads()
    with settings.variable(VARIABLE, "1"):
        try:
            yield
        finally:
            finish(before)


def threads() -> frozenset[str]:
    """Those of this process, which Python may know nothing of; none where the system does not list them.

    >>> threads()
    frozenset({'4711', '4712'})
    """
    try:
        return frozenset(os.listdir(THREADS))
    except OSError:
        return frozenset()


def finish(before: frozenset[str], limit_s: float = LIMIT_S) -> bool:
    """Call CUDA until the threads that are not among `before` have ended; whether they have.

    >>> finish(before)
    True
    """
    until = time.perf_counter() + limit_s
    while threads() - before:
        if time.perf_counter() > until:
            return False
        call_cuda()
        time.sleep(PAUSE_S)
    return True


def call_cuda() -> None:
    """The cheapest call of CUDA's runtime that torch makes."""
    torch.cuda.current_device()
