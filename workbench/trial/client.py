"""The notebook's side: start the worker, hand it jobs, read what happened to them. Whatever dies, this does not."""

from __future__ import annotations

import atexit
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time

import torch

from ..errors import ToolchainError
from . import explain, faults
from .parcel import Parcel
from .protocol import Answer, Job, Result
from .wire import Done, MemoryFile, Order, Reply, Stored, pack, receive, send

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
                try:
                    return answer(job, order, self._ask(order, limit_s))
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
    return Order(packed, files, loose.parcel(), MemoryFile(), os.urandom(16), dict(os.environ), path, directory, threads)


def answer(job: Job, order: Order, reply: Reply) -> Answer:
    """What the worker saw, as one result a step."""
    file = order.results.fd
    size = os.fstat(file).st_size
    data = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) if size else b""
    story = _Story(job, reply, data, order.mark)
    try:
        for frame in reply.frames:
            story.read(*pickle.loads(frame))
        ended = reply.ended
    except Exception:  # the code under trial wrote into our pipe
        ended = False
    if not ended:
        story.break_off()
    return Answer(story.results(), story.all_printed(), reply.seconds)


class _Story:
    """The frames of one child, read in order."""

    def __init__(self, job: Job, reply: Reply, data: mmap.mmap | bytes, mark: bytes) -> None:
        self.job, self.reply, self.data = job, reply, data
        self.done: dict[int, Result] = {}
        self.current, self.blocks, self.failed = -1, [], ""
        self.marks = 0
        self.printed = reply.printed.split(mark)  # one part a step that is done, and the rest
        self.mark_bytes = len(mark)
        self.last_words = _text(reply.last_printed.split(mark)[-1])

    def read(self, kind: str, *content: object) -> None:
        if kind == "begin":
            self.current, self.blocks = content[0], list(content[1])
        elif kind == "block":
            self.blocks.append(content[0])
        elif kind == "done":
            done: Done = content[0]
            self.done[done.step] = self._result(done)
            self.marks += 1
            self.current = done.step
        elif kind == "failed":
            self.failed = content[0]

    def break_off(self) -> None:
        """The step that was running is the one that did it."""
        number = self.current if self.current not in self.done else self.current + 1
        if self.reply.hung:
            status, detail, name = "hang", f"still running after {self.reply.seconds:.3g} s", ""
        elif found := faults.parse(self.reply.fault):
            (status, detail), name = explain.fault(found, tuple(self.blocks), self.last_words), found.name
        else:
            status, detail, name = explain.ended(self.reply.exit, self.last_words)
        if number < 0:
            number, detail = 0, f"while its library was loaded: {detail}"
        if number < len(self.job.steps):
            case, printed = self.job.steps[number].case, self._printed(number)
            self.done[number] = Result(number, case, status, detail, name, printed=printed)

    def results(self) -> tuple[Result, ...]:
        rest = ("error", self.failed) if self.failed else ("skip", "not reached")
        return tuple(self.done.get(i) or Result(i, s.case, *rest) for i, s in enumerate(self.job.steps))

    def all_printed(self) -> str:
        """Without the marks; one that the limit cut in two may stay."""
        return _text(b"".join(self.printed), self.reply.printed_bytes - self.marks * self.mark_bytes)

    def _printed(self, number: int) -> str:
        return _text(self.printed[number]) if number < len(self.printed) else ""

    def _result(self, done: Done) -> Result:
        case = self.job.steps[done.step].case
        outputs = tuple(self._load(v) for v in done.outputs)
        mutated = {name: self._load(v) for name, v in done.mutated.items()}
        return Result(done.step, case, done.status, done.detail, "", outputs, mutated, done.unwritten, done.aliases,
                      self._printed(done.step), done.seconds)

    def _load(self, value: object) -> object:
        if isinstance(value, list):
            return [self._load(v) for v in value]
        if not isinstance(value, Stored):
            return value
        meta = value.meta
        if not meta.extent:
            return torch.empty_strided(meta.shape, meta.strides, dtype=meta.dtype)
        count = meta.extent * meta.dtype.itemsize
        flat = torch.frombuffer(self.data, dtype=torch.uint8, count=count, offset=value.position)
        return torch.empty(0, dtype=meta.dtype).set_(
            flat.untyped_storage(), 0, meta.shape, meta.strides
        )


def _all(job: Job, status: str, detail: str) -> Answer:
    return Answer(tuple(Result(i, s.case, status, detail) for i, s in enumerate(job.steps)))


def _text(data: bytes, whole: int = 0) -> str:
    text = data.decode(errors="replace")
    return text + (f"\n... truncated: {whole} bytes in all" if whole > len(data) else "")


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
