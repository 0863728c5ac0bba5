"""The warm process as the notebook holds it: started anew, or forked off another one."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Protocol

from .stack import ordinary
from .wire import TWIN, MemoryFile, Order, Reply, pack, receive, send

START_S = 120.0  # for importing torch from a cold disk
GRACE_S = 10.0  # beyond a job's limit, before the worker itself counts as hung
LOG_BYTES = 4000


class Process(Protocol):
    """What is asked of a process, as `subprocess.Popen` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class Live:
    """A process that was started, the socket to it, and the file that holds what it says when it cannot start."""

    process: Process
    channel: socket.socket
    errors: MemoryFile

    def log(self) -> str:
        size = os.fstat(self.errors.fd).st_size
        return os.pread(self.errors.fd, LOG_BYTES, max(0, size - LOG_BYTES)).decode(errors="replace")

    def ask(self, order: Order, limit_s: float) -> Reply:
        data, files = pack(order)
        self.channel.settimeout(limit_s + GRACE_S)
        send(self.channel, data, [file.fd for file in files], limit_s)
        return pickle.loads(receive(self.channel)[0])


def started(preloads: tuple[str, ...]) -> Live:
    near, far = socket.socketpair()
    errors = MemoryFile()
    process = subprocess.Popen(
        ordinary(python(f"{__package__}.worker", str(far.fileno()), str(os.getpid()), *preloads)),
        stdin=subprocess.DEVNULL,
        stdout=errors.fd,
        stderr=errors.fd,
        pass_fds=[far.fileno()],
        start_new_session=True,  # Ctrl-C is for the notebook
        env=surroundings(),
    )
    far.close()
    return Live(process, near, errors)


class Forked:
    """A process that is another one's child. It ends when its channel does, whatever it is doing."""

    pid = 0  # nobody here may wait for it, so that its number could be another's by now

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and _at_its_end(self.channel):
            self.returncode = -signal.SIGKILL
        return self.returncode

    def kill(self) -> None:
        try:
            self.channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended, or was closed

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode or 0


def _at_its_end(channel: socket.socket) -> bool:
    look = select.poll()
    try:
        look.register(channel, select.POLLIN)
        return bool(look.poll(0)) and not channel.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True


def forked(live: Live | None) -> Live | None:
    """A process like `live`, with all that it has imported; None where `live` is dead. It must have no job."""
    if live is None:
        return None
    near, far = socket.socketpair()
    errors = MemoryFile()
    try:
        send(live.channel, b"", (far.fileno(), errors.fd), TWIN)
    except OSError:
        near.close()
        return None
    finally:
        far.close()
    return Live(Forked(near), near, errors)


def python(module: str, *arguments: str) -> list[str]:
    """`python -m MODULE ARGUMENTS`, but for the folder that one stands in, which `-m` and `-c` put before all others.

    A notebook and a script do not look there, so a `random.py` that lies there is none of theirs. (`-P` says the same
    from Python 3.11 on.)
    """
    first = "import sys; sys.path[0] or sys.path.pop(0); import runpy"
    return [sys.executable, "-c", f"{first}; runpy.run_module({module!r}, None, '__main__', True)", *arguments]


def surroundings() -> dict[str, str]:
    """The environment in which a worker finds what this process finds."""
    path = [os.path.abspath(p) for p in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
