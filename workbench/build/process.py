"""Running a compiler: its output by pipe, its whole process group ended on interrupt, time limit and exit."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor  # its module waits for its threads at exit: `_ending` comes before
from dataclasses import dataclass
from typing import Any

from .. import settings
from ..errors import ToolchainError
from ..turn import free_in_forks

_running: dict[subprocess.Popen, int] = {}  # and the process that started it: a forked worker ends none of them
_waited_for: dict[subprocess.Popen, str] = {}  # those of them that somebody waits for, and their names
_thread = threading.local()  # .stopped: the event that ends what this thread runs; .background: nobody waits for it
_ending = threading.Event()  # the main thread has ended, and this process waits for no compiler
getattr(threading, "_register_atexit", atexit.register)(_ending.set)
_over = threading.Event()  # nothing is started any more
_starting = free_in_forks(threading.RLock())  # between the start of a compiler and its entry in `_running`
_background: list[threading.Thread] = []
ENDED = (
    "this program is ending, and nothing is built or checked any more: let the main thread wait for this one, by "
    "thread.join()"
)
TIDY_S = 2.0  # at exit, for what a compiler that was killed had written: half a header is 50 MB


@dataclass(frozen=True)
class Finished:
    """`code` is the exit status, negative for a signal; `log` is stdout and stderr together; `seconds` by the wall."""

    code: int
    log: str
    seconds: float

    @property
    def signal(self) -> str:
        """The name of the signal that ended it, "" when it ended by itself."""
        try:
            return signal.Signals(-self.code).name if self.code < 0 else ""
        except ValueError:
            return f"signal {-self.code}"


def run(
    command: Sequence[str],
    *,
    text: str = "",
    cwd: str,
    temporary: str,
    limit_s: float,
    background: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Run `command` with `text` on its standard input.

    >>> run(["g++", "-x", "c++", "-c", "-o", "/tmp/x.o", "-"], text="int f();", cwd="/tmp", temporary="/tmp", limit_s=9)
    Finished(code=0, log='', seconds=0.01)

    `temporary` is where the command may leave files of its own; `background` gives it the lowest priority, `variables`
    stand in its environment beside those of every compiler. Raises ToolchainError when it cannot be started and
    TimeoutError after `limit_s`. Then, and on KeyboardInterrupt, every process of its group is killed first.
    """
    refuse_at_the_end()
    look_up()
    nice = shutil.which("nice", path=settings.programs()) if background else None
    began = time.perf_counter()
    try:
        child = _started(
            [nice, "-n", "19", *command] if nice else list(command),
            cwd=cwd, env={**settings.compiler_environment(temporary), **(variables or {})}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ToolchainError(f"{command[0]} cannot be started: {error.strerror}") from error
    if not background:
        _waited_for[child] = os.path.basename(command[0])
    try:
        output = _communicate(child, text.encode("utf-8", "replace"), began + limit_s)
    finally:
        if child.returncode is None:  # interrupted, too slow, or anything else that is not its end
            _kill(child)
        _running.pop(child, None)
        _waited_for.pop(child, None)
    if output is None:
        raise TimeoutError(f"{os.path.basename(command[0])} took more than {limit_s:g} s")
    return Finished(child.returncode, output.decode("utf-8", "replace"), time.perf_counter() - began)


def _started(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """The compiler, which `end_all` knows of. KeyboardInterrupt once that was called: whoever waits for it is going."""
    with _starting:
        if _over.is_set():
            raise KeyboardInterrupt
        child = subprocess.Popen(command, **how)
        _running[child] = os.getpid()
    return child


def busy() -> str:
    """The program that is waited for just now, `g++`; "" for none."""
    return next(iter(list(_waited_for.values())), "")


def end_with(stopped: threading.Event) -> None:
    """Once `stopped` is set, whatever this thread runs, or is about to, ends in KeyboardInterrupt.

    For threads that compile for the main thread, which alone gets the user's interrupt.

    >>> ThreadPoolExecutor(2, initializer=process.end_with, initargs=(stopped,))
    """
    _thread.stopped = stopped


def in_background() -> None:
    """What this thread runs is waited for by nobody, until the end of this process, which ends it."""
    _thread.background = True
    _background.append(threading.current_thread())


@contextlib.contextmanager
def pool(count: int, *, wait: bool = False) -> Iterator[ThreadPoolExecutor]:
    """Threads that compile for this one. The block waits for none of them; an interrupt ends what they run, and so does
    the end of a generator that nobody asks any more. With `wait` the block's end ends what they still run, and waits.

    >>> with process.pool(2) as pool:
    ...     pending = pool.submit(build_launcher)
    ...     build_body()
    ...     pending.result()

    Raises ToolchainError after the end of the main thread, when Python starts no such threads any more.
    """
    refuse_at_the_end()
    stopped = threading.Event()
    made = ThreadPoolExecutor(count, initializer=end_with, initargs=(stopped,))
    try:
        yield made
    except (KeyboardInterrupt, GeneratorExit):
        stopped.set()
        raise
    finally:
        if wait:
            stopped.set()
        made.shutdown(wait=wait, cancel_futures=True)


def look_up() -> None:
    """KeyboardInterrupt where this thread's work is to end: to be called between slices of waiting."""
    ending = _over if getattr(_thread, "background", False) else _ending
    if ending.is_set() or (hasattr(_thread, "stopped") and _thread.stopped.is_set()):
        raise KeyboardInterrupt


def refuse_at_the_end() -> None:
    """ToolchainError in a thread of the user's that goes on after the main thread, and in what runs at exit."""
    ours = hasattr(_thread, "stopped") or getattr(_thread, "background", False)
    if _ending.is_set() and not ours:
        raise ToolchainError(ENDED)


def _communicate(child: subprocess.Popen, given: bytes | None, until: float) -> bytes | None:
    """Its output, None when it does not end in time. In slices, since an interrupt need not end a system call."""
    while True:
        rest = until - time.perf_counter()
        try:
            return child.communicate(given, timeout=max(0.0, min(rest, 0.25)))[0]
        except subprocess.TimeoutExpired:
            if rest <= 0:
                return None
            given = None  # it has been taken over
            look_up()


def _kill(child: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        _end(child.pid)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def _end(leader: int) -> None:
    """Kill a command and all that it has started: its group, then its session, since ninja gives each compiler a
    group of its own.
    """
    os.killpg(leader, signal.SIGKILL)
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and os.getsid(int(entry)) == leader:
                    os.kill(int(entry), signal.SIGKILL)


@atexit.register
def end_all() -> None:
    """Kill what this process still runs, start nothing any more, and have background threads clear up."""
    _over.set()
    with _starting:
        left = list(_running.items())
    for child, owner in left:
        if child.returncode is None and owner == os.getpid():
            with contextlib.suppress(OSError):
                _end(child.pid)
    until = time.perf_counter() + TIDY_S
    for thread in set(_background) - {threading.current_thread()}:
        thread.join(max(0.0, until - time.perf_counter()))


os.register_at_fork(after_in_child=_background.clear)
