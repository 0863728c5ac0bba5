"""One process of `gpu_worker` as the notebook sees it: started, asked, watched, killed."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from ..errors import ToolchainError
from .stack import ordinary
from .warm import LOG_BYTES, START_S, python, surroundings
from .watch import Watch, read_all
from .wire import MemoryFile, Order, Reply, pack, receive, send

STOP_S = 0.5  # what ending takes at most; a GPU may take seconds to let go of a kernel, and nobody need wait for it


class Process:
    """A worker process with a context on `device`.

    >>> process = Process("cuda:0")
    >>> process.wait()
    >>> process.ask(order, limit_s=10)

    `prefix` is a program that starts it and writes into `log`: the guarding is then left to that one. `extra` is added
    to the environment.
    """

    def __init__(
        self, device: str, *, prefix: Sequence[str] = (), log: str = "", extra: Mapping[str, str] | None = None
    ) -> None:
        self.errors = MemoryFile()
        frames, output, record = os.pipe(), os.pipe(), os.pipe()
        self.frames, self.output, self.record = frames[0], output[0], record[0]
        for fd in (self.frames, self.output, self.record):
            os.set_blocking(fd, False)
        far = [frames[1], output[1], record[1]]
        arguments = [device, *([log] if log else [])]
        try:
            if prefix:
                self._start_behind(prefix, arguments, extra or {})
            else:
                self.channel, theirs = socket.socketpair()
                with theirs:
                    number = theirs.fileno()
                    self._start([], [str(number), str(os.getpid()), *arguments], [number], extra or {})
            send(self.channel, b"", far)
        finally:
            for fd in far:
                os.close(fd)
        self.ready = self.killed = False
        self.recorded = b""
        try:
            self.wakeup = os.pidfd_open(self.process.pid)
        except (AttributeError, OSError):
            self.wakeup = os.dup(self.channel.fileno())  # it hangs up when it ends

    def _start(self, prefix: Sequence[str], arguments: list[str], fds: list[int], extra: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            ordinary([*prefix, *python(f"{__package__}.gpu_worker", *arguments)]),
            stdin=subprocess.DEVNULL,
            stdout=self.errors.fd,
            stderr=self.errors.fd,
            pass_fds=fds,
            start_new_session=True,  # Ctrl-C is for the notebook
            env={**surroundings(), **extra},
        )

    def _start_behind(self, prefix: Sequence[str], arguments: list[str], extra: Mapping[str, str]) -> None:
        """Programs that start others need not hand on descriptors: here it finds us by a path."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
            path = os.path.join(folder, "control")
            door.bind(path)
            door.listen(1)
            self._start(prefix, [path, "0", *arguments], [], extra)
            door.settimeout(1.0)
            for _ in range(int(START_S)):
                try:
                    self.channel = door.accept()[0]
                    return
                except TimeoutError:
                    if self.process.poll() is not None:
                        break
            self.process.kill()
            raise ToolchainError(
                f"{os.path.basename(prefix[0])} does not start the trial worker:\n{self.log()}".rstrip()
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def dead(self) -> bool:
        return self.process.poll() is not None

    def log(self) -> str:
        """The end of what it printed before it was ready."""
        size = os.fstat(self.errors.fd).st_size
        return os.pread(self.errors.fd, LOG_BYTES, max(0, size - LOG_BYTES)).decode(errors="replace")

    def wait(self, limit_s: float = START_S) -> None:
        """Until it is ready for a job. ToolchainError, with what it said, when it cannot start."""
        if self.ready:
            return
        try:
            self.channel.settimeout(limit_s)
            receive(self.channel)
            self.recorded = read_all(self.record)  # what `faults` says beforehand
            self.ready = True
        except (EOFError, OSError) as error:
            why = f"no sign of life in {limit_s:g} s" if isinstance(error, TimeoutError) else "it died"
            raise ToolchainError(f"the GPU trial worker does not start ({why}):\n{self.log()}".rstrip()) from None

    def ask(self, order: Order, limit_s: float) -> Reply:
        """Have a job done. ConnectionError or TimeoutError if the process does not take it."""
        read_all(self.output)  # what was printed after the last word of the job before
        data, files = pack(order)
        self.channel.settimeout(limit_s)
        send(self.channel, data, [file.fd for file in files], limit_s)
        return Watch(self, self.wakeup, recorded=self.recorded).until_end(limit_s)

    def kill(self) -> None:
        self.killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def interrupt(self) -> str:
        """It is not asked where it is: most likely in a kernel."""
        return ""

    def exit_code(self) -> int | None:
        return -signal.SIGKILL if self.killed else self.process.poll()

    def close(self, *, ours: bool = True) -> None:
        """End it. One that is not `ours` belongs to the process that this one was forked from: only let go of it."""
        if ours:
            self.kill()
        else:
            self.process.returncode = 0
        self.channel.close()
        for fd in (self.frames, self.output, self.record, self.wakeup):
            os.close(fd)

    def bury(self, limit_s: float = STOP_S) -> bool:
        """Whether it is gone."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def spent(reply: Reply) -> bool:
    """Did the process say, or show, that it takes no further job?"""
    if reply.hung or not reply.ended or not reply.frames:
        return True
    try:
        return pickle.loads(reply.frames[-1])[0] == "spent"
    except Exception:  # the code under trial wrote into our pipe
        return True


class Starter:
    """Starts processes from one thread that lives as long as the notebook.

    A process that wants to die with its parent dies with the thread that started it.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], Process], Future]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="workbench-gpu-starter", daemon=True).start()

    def start(self, make: Callable[[], Process]) -> Process:
        done: Future = Future()
        self._orders.put((make, done))
        return done.result()

    def _serve(self) -> None:
        while True:
            make, done = self._orders.get()
            try:
                done.set_result(make())
            except BaseException as error:
                done.set_exception(error)
            del done, make
