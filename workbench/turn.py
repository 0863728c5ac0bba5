"""Who may change ops now: a cell's build, a verb at work and a watch that reloads take turns."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def free_in_forks(lock: Any) -> Any:
    """The same RLock. A fork finds it free, unless the thread that forked has it: no other lives on to give it back."""

    def free() -> None:
        if not lock._is_owned():
            lock._at_fork_reinit()

    os.register_at_fork(after_in_child=free)
    return lock


# Held by a cell's whole build, by the whole reload of a file, by a verb from begin to end.
turn = free_in_forks(threading.RLock())


def in_turn(function: Callable[P, R]) -> Callable[P, R]:
    """A function that waits for its turn, and has it until it returns.

    >>> @in_turn
    ... def bench(op): ...            # no watch puts another version into a slot that is being timed
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with turn:
            return function(*args, **kwargs)

    return call
