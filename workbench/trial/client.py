"""The notebook's side: start the worker, hand it jobs, read what happened to them. Whatever dies, this does not."""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import torch

from ..errors import ToolchainError
from .answer import answer
from .parcel import Parcel
from .protocol import Answer, Job, Result
from .wire import MemoryFile, Order, Reply, pack, receive, send

START_S = 120.0  # for importing torch from a cold disk
GRACE_S = 10.0  # beyond a job's limit, before the worker itself counts as hung


class Worker:
    """A warm process that runs jobs one at a time, each in a child of its own.

    >>> Worker().run(Job((Step("aten::add.Tensor", (x, y)),)), limit_s=10).results[0].outputs[0]

    It is started by `warm`, or by the first job, and again whenever it is found dead. It ends with this process.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen | None = None
        self._channel: socket.socket | None = None
        self._errors: MemoryFile | None = None
        self._ready = False
        self._owner = os.getpid()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def warm(self) -> None:
        """Start the process if there is none; returns at once."""
        with self._lock:
            if self._owner != os.getpid():  # a fork of the notebook: the worker is the notebook's
                self._forget()
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            near, far = socket.socketpair()
            self._errors = MemoryFile()
            path = [os.path.abspath(p) for p in sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-m", __package__ + ".worker", str(far.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=self._errors.fd,
                stderr=self._errors.fd,
                pass_fds=[far.fileno()],
                start_new_session=True,  # Ctrl-C is for the notebook
                env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))},
            )
            far.close()
            self._channel, self._ready = near, False

    def run(self, job: Job, limit_s: float) -> Answer:
        """Take the steps of `job` in a fresh child, for at most `limit_s` seconds in all.

        Never raises for what the code under trial does: that is in the answer. Raises ToolchainError if no worker
        can be started.
        """
        with self._lock:
            for attempt in (1, 2):
                order = _order(job)
                self._wait()
                started = time.perf_counter()
                try:
                    return answer(job, order, self._ask(order, limit_s), started)
                except (EOFError, ConnectionError):  # the worker died: of this job, or before it
                    self.close()
                    if attempt == 2:
                        self.warm()
                        return _all(job, "crash", "it killed the process that watches over it, twice")
                except TimeoutError:
                    self.close()
                    self.warm()
                    return _all(job, "hang", f"no answer within {limit_s:g} s")
                except BaseException:  # an interrupt: what is on the wire belongs to nobody now
                    self.close()
                    self.warm()
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the worker and all that it started."""
        with self._lock:
            process, self._process = self._process, None
            if self._channel is not None:
                self._channel.close()
                self._channel = None
            if process is not None and self._owner == os.getpid():
                try:
                    process.kill()
                    process.wait(GRACE_S)
                except (OSError, subprocess.TimeoutExpired):
                    pass
            self._ready = False

    def _forget(self) -> None:
        """Let go of a worker that belongs to the process this one was forked from."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._process, self._channel, self._ready = None, None, False
        self._owner, self._lock = os.getpid(), threading.RLock()

    def _wait(self) -> None:
        for attempt in (1, 2):
            self.warm()
            if self._ready:
                return
            try:
                self._channel.settimeout(START_S)
                receive(self._channel)
                self._ready = True
                return
            except (EOFError, OSError) as error:
                log = self._log()
                self.close()
                if attempt == 2:
                    reason = f"no sign of life in {START_S:g} s" if isinstance(error, TimeoutError) else "it died"
                    raise ToolchainError(f"the trial worker does not start ({reason}):\n{log}".rstrip()) from None

    def _log(self) -> str:
        size = os.fstat(self._errors.fd).st_size
        return os.pread(self._errors.fd, 4000, max(0, size - 4000)).decode(errors="replace")

    def _ask(self, order: Order, limit_s: float) -> Reply:
        data, files = pack(order)
        self._channel.settimeout(limit_s + GRACE_S)
        send(self._channel, data, [file.fd for file in files], limit_s)
        return pickle.loads(receive(self._channel)[0])


class _Loose:
    """Tensors met while a job is pickled: they go into one parcel, under the numbers 0, 1, ..."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}

    def swap(self, item: object) -> object:
        if not isinstance(item, torch.Tensor):
            return None
        self.tensors[id(item)] = item
        return ("tensor", str(list(self.tensors).index(id(item))))

    def parcel(self) -> Parcel:
        return Parcel.of({str(i): t for i, t in enumerate(self.tensors.values())})


def _order(job: Job) -> Order:
    loose = _Loose()
    packed, files = pack(job, loose.swap)
    try:
        directory = os.getcwd()
    except OSError:
        directory = "/"
    path = [os.path.abspath(p) for p in sys.path]
    threads = max(2, torch.get_num_threads())
    return Order(
        packed, files, loose.parcel(), MemoryFile(), os.urandom(16), dict(os.environ), path, directory, threads
    )


def _all(job: Job, status: str, detail: str) -> Answer:
    return Answer(tuple(Result(i, s.case, status, detail) for i, s in enumerate(job.steps)))


_default: Worker | None = None
_guard = threading.Lock()


def worker() -> Worker:
    """The one worker of this process."""
    global _default
    with _guard:
        if _default is None or _default._owner != os.getpid():
            _default = Worker()
        return _default


def _close_default() -> None:
    if _default is not None and _default._owner == os.getpid():
        _default.close()


def _after_fork() -> None:
    global _default, _guard
    _guard = threading.Lock()
    if _default is not None:
        _default._forget()
        _default = None


atexit.register(_close_default)
os.register_at_fork(after_in_child=_after_fork)
