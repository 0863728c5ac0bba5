"""How slow work shows itself: one line that is written over, in a terminal or a live notebook, nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from . import words

WIDTH = 78
EVERY_S = 0.1
BAR = 16


class Told(Protocol):
    """What a step of slow work says: of what, at which step, how many of how many, seconds so far."""

    @property
    def op(self) -> str: ...
    @property
    def at(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def of(self) -> int: ...
    @property
    def seconds(self) -> float: ...


def line(told: Told) -> str:
    """One line of at most 78 characters.

    >>> line(Progress("lab::rmsnorm", "sizes", 12, 48, 3.2))
    'lab::rmsnorm [####            ] 12 of 48, 3.2 s: sizes'
    """
    filled = BAR * told.done // max(told.of, 1)
    bar = "#" * filled + " " * (BAR - filled)
    said = f"{told.op} [{bar}] {told.done} of {told.of}, {words.duration(told.seconds)}: {told.at}"
    return said if len(said) <= WIDTH else said[: WIDTH - 3] + "..."


@contextmanager
def shown(stream: TextIO | None = None, live: bool | None = None) -> Iterator[Callable[[Told], None]]:
    """A function to tell steps to; the line is gone at the end. `live` says whether anybody can see it."""
    stream = stream or sys.stderr
    seen = live if live is not None else _live(stream)
    last = [0.0, 0.0]

    def tell(told: Told) -> None:
        now = time.monotonic()
        if seen and now - last[0] >= EVERY_S:
            last[:] = [now, 1.0]
            stream.write("\r" + line(told).ljust(WIDTH))
            stream.flush()

    try:
        yield tell
    finally:
        if last[1]:
            stream.write("\r" + " " * WIDTH + "\r")
            stream.flush()


def _live(stream: TextIO) -> bool:
    from . import live

    try:
        return live() or stream.isatty()
    except ValueError:  # closed
        return False
