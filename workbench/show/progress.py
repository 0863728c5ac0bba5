"""How slow work shows itself: one line that is written over, in a terminal or below a notebook's cell, nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from . import words
from .waiting import Doing

# Makes a place below the cell that runs, in which what is shown replaces what was there. The notebook's magics give it.
place: Callable[[], Callable[[Doing], None]] | None = None
WIDTH = 78
EVERY_S = 0.2
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


def sentence(told: Told) -> str:
    """The same for a notebook.

    >>> sentence(Progress("lab::rmsnorm", "sizes", 12, 48, 3.2))
    'lab::rmsnorm: 12 of 48, 3.2 s: sizes; an interrupt keeps what is there'
    """
    done = f"{told.done} of {told.of}, {words.duration(told.seconds)}"
    return f"{told.op}: {done}: {told.at}; an interrupt keeps what is there"


@contextmanager
def shown(stream: TextIO | None = None, live: bool | None = None) -> Iterator[Callable[[Told], None]]:
    """A function to tell steps to; the line is gone at the end. `live` says whether anybody can see it."""
    if stream is None and live is None and place is not None:
        with _below(place()) as tell_below:
            yield tell_below
        return
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


@contextmanager
def _below(show: Callable[[Doing], None]) -> Iterator[Callable[[Told], None]]:
    last = [0.0]

    def tell(told: Told) -> None:
        now = time.monotonic()
        if now - last[0] >= EVERY_S:
            last[0] = now
            show(Doing(sentence(told)))

    try:
        yield tell
    finally:
        if last[0]:
            show(Doing())


def _live(stream: TextIO) -> bool:
    from . import live

    try:
        return live() or stream.isatty()
    except ValueError:  # closed
        return False
