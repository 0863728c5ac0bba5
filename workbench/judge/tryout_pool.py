"""Jobs side by side in workers, and all their steps in spite of crashes. It knows nothing of ops."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Protocol

from ..trial import Worker, worker
from ..trial.protocol import Answer, Job, Result

LIMIT_S, STEP_S = 10.0, 1.0  # for the first input of a job, and for each one more


class Runs(Protocol):
    """A worker for any device."""

    def run(self, job: Job, limit_s: float) -> Answer: ...
    def abandon(self) -> None: ...


class Pool:
    """Workers side by side: the one that runs already, and others where there are cores for them and work to do."""

    def __init__(self, first: Callable[[], Runs], more: int = 0) -> None:
        self._free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self._first, self._own = first, [worker().twin() for _ in range(more)]
        self._free.put(None)  # the one that runs already
        for one in self._own:
            self._free.put(one)
        self._threads = ThreadPoolExecutor(1 + more, thread_name_prefix="workbench-tryout")
        self._busy: dict[int, Runs] = {}  # by the number of the thread
        self._closed = False

    def submit(self, call: Callable[[Runs], list]) -> Future:
        def run() -> list:
            taken = self._free.get()
            try:
                return call(_Open(self, taken or self._first()))
            finally:
                self._free.put(taken)

        return self._threads.submit(run)

    def close(self) -> None:
        """Let go of it; what still runs is ended, so that whoever comes next need not wait for it."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in list(self._busy.values()):
            one.abandon()
        for one in self._own:
            one.close()


class _Open:
    """A worker that takes no more jobs once the pool is closed."""

    def __init__(self, pool: Pool, worker: Runs) -> None:
        self._pool, self._worker = pool, worker

    def run(self, job: Job, limit_s: float) -> Answer:
        me = threading.get_ident()
        self._pool._busy[me] = self._worker
        try:
            if self._pool._closed:
                raise CancelledError
            return self._worker.run(job, limit_s)
        finally:
            del self._pool._busy[me]

    def abandon(self) -> None:
        self._worker.abandon()


class Patience:
    """How many more crashes are worth a new child each: one kernel may crash on every input."""

    def __init__(self, crashes: int = 24) -> None:
        self.left = crashes


def until_all_ran(
    worker: Runs,
    job_of: Callable[[Sequence[Any]], tuple],
    found: Sequence[Any],
    repeats: int,
    patience: Patience,
    limit_s: float = math.inf,
) -> list[list[Result]]:
    """The results of each piece of evidence, `repeats` a piece; what a crash kept from running is run again.

    Once patience is at an end, what a crash kept from running has no results. `limit_s` may be less than is usual for
    the first input.
    """
    ran: list[list[Result]] = [[] for _ in found]
    todo = [i for i in range(len(found)) for _ in range(repeats)]
    while todo:
        job, own = job_of([found[i] for i in todo])
        answer = worker.run(job, min(LIMIT_S, limit_s) + STEP_S * len(todo))
        results = [answer.results[place] for place in own]
        reached = next(
            (n for n, r in enumerate(results) if r.status == "skip" and r.detail == "not reached"), len(todo)
        )
        if results[max(reached, 1) - 1].status == "hang" and reached > 1:
            reached -= 1  # the time may have been used up by those before it: it gets some of its own
        for i, r in zip(todo[:reached], results[:reached], strict=True):
            ran[i].append(r)
        todo = todo[max(reached, 1) :]
        patience.left -= 1 if todo else 0
        if patience.left < 0:
            break
    return ran
