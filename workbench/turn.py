"""Who may change ops now: a cell's build, a verb at work and a watch that reloads take turns."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

turn = threading.RLock()  # held by a cell's whole build, by the whole reload of a file, by a verb from begin to end


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
