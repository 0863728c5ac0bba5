"""The notebook's side: start the worker, hand it jobs, read what happened to them. Whatever dies, this does not."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time

import torch

from ..errors import ToolchainError
from . import allocator
from .answer import answer
from .parcel import Parcel
from .protocol import Answer, Job, Pickled, Result
from .warm import GRACE_S, START_S, Live, forked, started
from .wire import PRELOAD, MemoryFile, Order, pack, receive, send

ABANDONED = "stopped by an interrupt"


class Worker:
    """A warm process that runs jobs one at a time, each in a child of its own.

    >>> Worker().run(Job((Step("aten::add.Tensor", (x, y)),)), limit_s=10).results[0].outputs[0]

    It is started by `warm`, or by the first job, and again whenever it is found dead. It ends with this process.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._ready = False
        self._owner = os.getpid()
        self._preloads: tuple[str, ...] = ()
        self._abandoned = False

    @property
    def pid(self) -> int | None:
        return self._live.process.pid if self._live else None

    def warm(self) -> None:
        """Start the process if there is none; returns at once."""
        with self._lock:
            if self._owner != os.getpid():  # a fork of the notebook: the worker is the notebook's
                self._forget()
            if self._live is None or self._live.process.poll() is not None:
                self.close()
                self._live = started(self._preloads)
                allocator.prepare()

    def preload(self, module: str) -> None:
        """Have the process import a module, once, so that its children have it from the start; returns at once."""
        with self._lock:
            if module in self._preloads:
                return
            self._preloads += (module,)
            if self._live is not None and self._owner == os.getpid():
                try:
                    send(self._live.channel, module.encode(), (), PRELOAD)
                except OSError:
                    pass  # it is dead: the next one begins with it

    def twin(self) -> Worker:
        """Another worker, whose process is forked off this one's: 10 ms, where importing torch takes seconds of a core.

        While this one is at work, and whenever the fork is found dead, it is started as any other.
        """
        other = Worker()
        if self._lock.acquire(blocking=False):
            try:
                self.warm()
                other._preloads, other._live = self._preloads, forked(self._live)
            finally:
                self._lock.release()
        return other

    def run(self, job: Job, limit_s: float) -> Answer:
        """Take the steps of `job` in a fresh child, for at most `limit_s` seconds in all.

        Never raises for what the code under trial does: that is in the answer. Raises ToolchainError if no worker
        can be started, TypeError for a tensor that cannot travel.
        """
        with self._lock:
            self._abandoned = False
            for _ in range(2):
                order = order_of(job, guard=allocator.path() if job.allocates else "")
                live = self._wait()
                started = time.perf_counter()
                try:
                    guarded = bool(order.allocator) or not job.allocates
                    return answer(job, order, live.ask(order, limit_s), started, guarded=guarded)
                except (EOFError, ConnectionError):  # the worker died: of this job, or before it
                    self.close()
                    if self._abandoned:
                        break
                except TimeoutError:
                    self.close()
                    self.warm()
                    return same_for_all(job, "hang", f"no answer within {limit_s:g} s")
                except BaseException:  # an interrupt: what is on the wire belongs to nobody now
                    self.close()
                    self.warm()
                    raise
            self.warm()
            said = ABANDONED if self._abandoned else "it killed the process that watches over it, twice"
            return same_for_all(job, "crash", said)

    def abandon(self) -> None:
        """End the job that runs, for whoever waits for it in another thread; a later one finds a new process."""
        live = self._live
        if live is not None and self._owner == os.getpid():
            self._abandoned = True
            live.process.kill()

    def close(self) -> None:
        """End the worker and all that it started."""
        with self._lock:
            live, self._live, self._ready = self._live, None, False
            if live is None:
                return
            live.channel.close()
            if self._owner == os.getpid():
                try:
                    live.process.kill()
                    live.process.wait(GRACE_S)
                except (OSError, subprocess.TimeoutExpired):
                    pass

    def _forget(self) -> None:
        """Let go of a worker that belongs to the process this one was forked from."""
        if self._live is not None:
            self._live.channel.close()
            self._live.process.returncode = 0  # not ours to wait for
        self._live, self._ready = None, False
        self._owner, self._lock = os.getpid(), threading.RLock()

    def _wait(self) -> Live:
        """A worker that has said that it is ready."""
        reason = ""
        for _ in range(2):
            self.warm()
            live = self._live
            assert live is not None
            if self._ready:
                return live
            try:
                live.channel.settimeout(START_S)
                receive(live.channel)
                self._ready = True
                return live
            except (EOFError, OSError) as error:
                why = f"no sign of life in {START_S:g} s" if isinstance(error, TimeoutError) else "it died"
                reason = f"the trial worker does not start ({why}):\n{live.log()}".rstrip()
                self.close()
        raise ToolchainError(reason)


class _Loose:
    """Tensors met while a job is pickled: they go into one parcel, under the numbers 0, 1, ..."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}

    def swap(self, item: object) -> object:
        if isinstance(item, torch.ScriptObject):
            return ("object", Pickled.of(item).data)
        if not isinstance(item, torch.Tensor):
            return None
        self.tensors[id(item)] = item
        return ("tensor", str(list(self.tensors).index(id(item))))

    def parcel(self) -> Parcel:
        return Parcel.of({str(i): t for i, t in enumerate(self.tensors.values())})


def order_of(job: Job, *, guard: str = "", device: str = "cpu") -> Order:
    """A job with all that a worker needs; TypeError for a tensor that cannot travel."""
    loose = _Loose()
    packed, files = pack(job, loose.swap)
    try:
        directory = os.getcwd()
    except OSError:
        directory = "/"
    path = [os.path.abspath(p) for p in sys.path]
    threads = max(2, torch.get_num_threads())
    mark, environment = os.urandom(16), dict(os.environ)
    return Order(
        packed, files, loose.parcel(), MemoryFile(), mark, environment, path, directory, threads, guard, device
    )


def same_for_all(job: Job, status: str, detail: str) -> Answer:
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
