"""Measuring on other machines, through any `concurrent.futures.Executor`: shipments out, rows back, losses told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

from .space import Candidate

SHIPMENTS = 16  # of one case at most: each carries the inputs and what they should give
LOOK_S = 0.5
BRIEF = 80


@dataclass(frozen=True)
class Shipment:
    """A function that can be pickled by its name, and what it is called with there."""

    run: Callable[[Any], list[dict[str, Any]]]
    what: Any


def spread(
    executor: Executor,
    ship: Callable[[Sequence[Candidate]], Shipment],
    some: Sequence[Candidate],
    *,
    left_s: Callable[[], float],
    notes: list[str],
) -> Iterator[tuple[Sequence[Candidate], list[dict[str, Any]] | None]]:
    """Each group of candidates with its rows, as they come back; None for one that was lost, which `notes` tells.

    An interrupt, or the end of the budget, calls back what has not begun.
    """
    size = max(1, -(-len(some) // SHIPMENTS))
    groups = [some[i : i + size] for i in range(0, len(some), size)]
    futures: dict[Future, Sequence[Candidate]] = {}
    refused = []
    for group in groups:
        try:
            sent = ship(group)
            futures[executor.submit(sent.run, sent.what)] = group
        except (BrokenExecutor, RuntimeError, OSError) as error:
            notes.append(f"the executor takes no work ({_said(error)}): what it would have done is done here")
            refused.append(group)
    try:
        waiting = set(futures)
        while waiting and left_s() > 0:
            done, waiting = _done(waiting)
            for future in done:
                yield futures[future], _rows(future, notes)
        for future in waiting:
            notes.append("the budget ended before all workers had answered")
            yield futures[future], None
    finally:
        for future in futures:
            future.cancel()
    for group in refused:
        yield group, None


def _done(waiting: set[Future]) -> tuple[set[Future], set[Future]]:
    try:
        found = wait(waiting, LOOK_S, FIRST_COMPLETED)
        return set(found.done), set(found.not_done)
    except (AttributeError, TypeError):  # futures that are like those of the standard library, and not theirs
        import time

        done = {f for f in waiting if f.done()}
        if not done:
            time.sleep(LOOK_S / 10)
        return done, waiting - done


def _rows(future: Future, notes: list[str]) -> list[dict[str, Any]] | None:
    try:
        return future.result()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # killed, cancelled, cannot be pickled: whatever became of the worker
        notes.append(f"a worker of the executor was lost ({_said(error)}): what it had is done here")
        return None


def _said(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    name = type(error).__name__
    return f"{name}: {first}" if 0 < len(first) <= BRIEF else name  # long ones differ from task to task


__all__ = ["Shipment", "spread"]
