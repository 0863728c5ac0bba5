"""How slow work shows itself: one line that is written over, in a terminal or below a notebook's cell, nowhere else."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from . import words
from .waiting import Doing

# Makes a place below the cell that runs, in which what is shown replaces what was there. The notebook's magics give it.
place: Callable[[], Callable[[object], None]] | None = None
# Who else shows how far work is: the cards on the page. Told each step, and None at the end.
followers: list[Callable[[Told | None], None]] = []
WIDTH = 78
EVERY_S = 0.2
BAR = 16


class Told(Protocol):
    """What a step of slow work says: of what, at which step, how many of how many, seconds so far.

    It may also say `best`, what was found so far ("BLOCK=64, 41.2 us"), and `left_s`, the seconds still to come.
    """

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
    'lab::rmsnorm: 12 of 48, 3.2 s, about 9.6 s left: sizes; an interrupt keeps what is there'
    """
    best = getattr(told, "best", "")
    found = f"; best so far {best}" if best else ""
    return f"{told.op}: {counted(told)}: {told.at}{found}; an interrupt keeps what is there"


def counted(told: Told) -> str:
    """How many, for how long, and for how long still: "12 of 48, 3.2 s, about 9.6 s left"."""
    left = left_s(told)
    more = f", about {words.duration(left)} left" if left >= 1 else ""
    return f"{told.done} of {told.of}, {words.duration(told.seconds)}{more}"


def left_s(told: Told) -> float:
    """Seconds still to come, as the work says it, else at its pace so far; 0.0 while that is no guess."""
    said = getattr(told, "left_s", None)
    if said is not None:
        return said
    if told.done < 0.1 * told.of or told.seconds < 1:
        return 0.0
    return told.seconds * (told.of - told.done) / told.done


_running = 0


def stop() -> None:
    """What a stop button does: an interrupt of the work that runs, which keeps what it has; nothing where none does."""
    if _running:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def shown(stream: TextIO | None = None, live: bool | None = None) -> Iterator[Callable[[Told], None]]:
    """A function to tell steps to; the line is gone at the end. `live` says whether anybody can see it."""
    global _running
    _running += 1
    try:
        if stream is None and live is None and place is not None:
            with _below(place()) as tell_below:
                yield tell_below
        else:
            with _written(stream or sys.stderr, live) as tell_stream:
                yield tell_stream
    finally:
        _running -= 1


@contextmanager
def _written(stream: TextIO, live: bool | None) -> Iterator[Callable[[Told], None]]:
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
def _below(show: Callable[[object], None]) -> Iterator[Callable[[Told], None]]:
    """Below the cell, with a stop button where widgets are there, and in the cards that follow."""
    last = [0.0]
    strip = _strip()

    def tell(told: Told) -> None:
        now = time.monotonic()
        if now - last[0] < EVERY_S:
            return
        if strip is None:
            show(Doing(sentence(told)))
        else:
            strip.tell(told, styled=True)
            if not last[0]:
                show(Shown(strip.bundle()))
        last[0] = now
        for follow in followers:
            follow(told)

    try:
        yield tell
    finally:
        if last[0]:
            show(Doing())
            for follow in followers:
                follow(None)
        if strip is not None:
            strip.close()


def _strip():
    try:
        from .widget_running import Strip
    except ImportError:
        return None
    return Strip()


class Shown:
    """A bundle that is there already."""

    def __init__(self, bundle: dict) -> None:
        self.bundle = bundle

    def _repr_mimebundle_(self, include=None, exclude=None, **_) -> dict:
        return self.bundle


def _live(stream: TextIO) -> bool:
    from . import live

    try:
        return live() or stream.isatty()
    except ValueError:  # closed
        return False
