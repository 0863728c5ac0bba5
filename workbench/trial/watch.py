"""Watching one process at work: what it says, what it prints, how it ends, and when its time is up."""

from __future__ import annotations

import os
import selectors
import socket
import time
from typing import Protocol

from .wire import COMPILED, COMPILES, FRAME, Reply

PRINTED_BYTES = 64 << 10  # what is kept of a process's output: its beginning,
LAST_BYTES = 4 << 10  # and its end, where a dying program says why
LAST_WORDS_S = 0.6  # for a process that ran out of time to say where it is;
STOPPED = ("", "T", "Z")  # none for one that cannot
PATIENCE_S = 5.0  # between looks, once there is no time limit left to look at
COMPILING_S = 600.0  # the most that a job may spend on compiling, which is no time of its own
CHUNK = 1 << 16


class Watched(Protocol):
    """A process under watch: the near ends of its pipes, which do not block."""

    frames: int  # what it says of the job, as `wire.FRAME` has it
    output: int  # what it prints
    record: int  # what `faults` writes of a deadly signal

    def kill(self) -> None: ...

    def interrupt(self) -> str:
        """Have it say where it is, and end; the state that it was in, as /proc has it: "R". "" where it cannot."""

    def exit_code(self) -> int | None:
        """As os.waitstatus_to_exitcode says it; None while it lives."""


class Watch:
    """Everything that a process says until its end.

    `wakeup` is readable when it may have ended; when `control` is readable nobody waits any more, and the process
    that watches ends, too. `recorded` was read from the record before.
    """

    def __init__(
        self, process: Watched, wakeup: int, control: socket.socket | None = None, recorded: bytes = b""
    ) -> None:
        self.process, self.wakeup, self.control = process, wakeup, control
        self.pending = bytearray()
        self.frames: list[bytes] = []
        self.printed = bytearray()
        self.printed_bytes = 0
        self.last_printed = b""
        self.fault = bytearray(recorded)
        self.ended = False
        self.compiled_s, self.compiles_since = 0.0, 0.0

    def compiling_s(self) -> float:
        """How long it has been compiling so far, in all."""
        now = time.monotonic() - self.compiles_since if self.compiles_since else 0.0
        return min(self.compiled_s + now, COMPILING_S)

    def until_end(self, limit_s: float) -> Reply:
        """Wait until the process has said its last word, is dead, or was killed at the limit.

        The time in which it says that it compiles does not count.
        """
        started = time.monotonic()
        hung, code, state, seconds = False, None, "", 0.0
        look = selectors.PollSelector()  # other than select.select it takes descriptors above 1023
        sources = (self.process.frames, self.process.output, self.process.record, self.wakeup)
        for source in [*sources, *([self.control.fileno()] if self.control else [])]:
            look.register(source, selectors.EVENT_READ)
        while code is None:
            left = started + limit_s + self.compiling_s() - time.monotonic()
            if left <= 0 and not hung:
                hung, seconds, state = True, time.monotonic() - started, self.process.interrupt()
            if hung and (left <= -LAST_WORDS_S or state in STOPPED):
                self.process.kill()
                left = PATIENCE_S
            elif hung:
                left += LAST_WORDS_S
            ready = [key.fileobj for key, _ in look.select(max(left, 0.02))]
            if self.control and self.control.fileno() in ready:  # the notebook is gone, or stopped waiting
                self.process.kill()
                os._exit(0)
            self.drain()
            code = 0 if self.ended else self.process.exit_code()
        self.drain()
        return Reply(
            frames=tuple(self.frames),
            fault=bytes(self.fault),
            ended=self.ended,
            exit=code,
            hung=hung,
            printed=bytes(self.printed),
            last_printed=self.last_printed,
            printed_bytes=self.printed_bytes,
            seconds=seconds or time.monotonic() - started,
            state=state,
            compiled=bool(self.compiles_since),
        )

    def drain(self) -> None:
        self.pending += read_all(self.process.frames)
        self.fault += read_all(self.process.record)
        self.read_printed()
        while len(self.pending) >= FRAME.size:
            end = FRAME.size + FRAME.unpack_from(self.pending)[0]
            if len(self.pending) < end:
                break
            frame = bytes(self.pending[FRAME.size : end])
            if not frame:
                self.ended = True
            elif frame in (COMPILES, COMPILED):
                self.compiled_s, self.compiles_since = self.compiling_s(), time.monotonic() * (frame == COMPILES)
            else:
                self.frames.append(frame)
            del self.pending[:end]

    def read_printed(self) -> None:
        """What was printed so far, at most a few chunks: a flood must not keep us from looking at the clock."""
        for _ in range(16):
            data = _read_some(self.process.output)
            if not data:
                return
            self.printed_bytes += len(data)
            self.printed += data[: PRINTED_BYTES - len(self.printed)]
            self.last_printed = (self.last_printed + data)[-LAST_BYTES:]


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return b""


def read_all(fd: int) -> bytes:
    """What lies in a pipe that does not block."""
    parts = []
    while data := _read_some(fd):
        parts.append(data)
    return b"".join(parts)
