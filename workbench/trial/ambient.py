"""What a kernel changed of the process that runs it, beside memory: taken stock of before and after, told in words.

A notebook has one working directory, one locale, one set of signal handlers and descriptors for all that runs in it.
A kernel that changes one of them, or leaves a thread or a process at work, spoils what runs after it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SETTLE_S = 0.5  # for threads of a pool, which look for work for a while before they sleep
HANDLERS = (signal.SIGINT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
LIMITS = {n: getattr(resource, n) for n in dir(resource) if n.startswith("RLIMIT_") and n != "RLIMIT_OFILE"}
_FUTEX = {"x86_64": "202", "aarch64": "98"}
_LC_ALL = 6
_FINI_ARRAY, _FINI_ARRAY_BYTES = 26, 28
_libc = ctypes.CDLL(None)
_libc.setlocale.restype = ctypes.c_char_p
_environ = ctypes.POINTER(ctypes.c_char_p).in_dll(_libc, "environ")


@dataclass(frozen=True)
class Ambient:
    """The state of this process at one moment. Fields that cannot be read here are empty, and so never differ."""

    directory: str
    locale: bytes
    environment: dict[bytes, bytes]
    status: dict[str, int]  # masks of signals, umask
    handlers: tuple[bytes, ...]
    timers: tuple[float, ...]
    limits: tuple
    files: dict[int, tuple[int, int] | None]
    threads: frozenset[str]

    @classmethod
    def now(cls) -> Ambient:
        return cls(
            directory=_directory(),
            locale=_libc.setlocale(_LC_ALL, None) or b"",
            environment=_environment(),
            status=_status(),
            handlers=tuple(map(_handler, HANDLERS)),
            timers=tuple(max(signal.getitimer(w)) for w in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)),
            limits=tuple(map(resource.getrlimit, LIMITS.values())),
            files=_files(),
            threads=threads(),
        )

    def changes(self, then: Ambient) -> list[str]:
        """What is otherwise in this one than `then`; empty where nothing is."""
        found = [f"the working directory, now {self.directory}"] if self.directory != then.directory else []
        if self.locale != then.locale:
            found.append(f"the locale, now {self.locale.decode(errors='replace')}")
        names = sorted(n for n, _ in self.environment.items() ^ then.environment.items() if not n.startswith(b"__"))
        found += [f"the environment variable {n.decode(errors='replace')}" for n in dict.fromkeys(names)]
        ignored, caught = (self.status.get(n, 0) ^ then.status.get(n, 0) for n in ("SigIgn", "SigCgt"))
        moved = {int(s) for s, a, b in zip(HANDLERS, self.handlers, then.handlers, strict=True) if a != b}
        moved |= {n for n in range(1, 65) if (ignored | caught) >> (n - 1) & 1}
        found += [f"the handler of {_signal(n)}" for n in sorted(moved)]
        if self.status.get("SigBlk") != then.status.get("SigBlk"):
            found.append("which signals are blocked")
        if self.status.get("Umask") != then.status.get("Umask"):
            found.append(f"the umask, now {self.status.get('Umask', 0):03o}")
        found += ["a timer, which still runs"] if any(self.timers) and not any(then.timers) else []
        limits = zip(LIMITS, self.limits, then.limits, strict=True)
        found += [f"a resource limit, {name}" for name, a, b in limits if a != b]
        return [*found, *self._files_since(then)]

    def _files_since(self, then: Ambient) -> list[str]:
        closed = sorted(then.files.keys() - self.files.keys())
        other = [n for n, what in then.files.items() if what and self.files.get(n, what) != what]
        few = f"{', '.join(map(str, closed[:3]))}{' ...' if closed[3:] else ''}"
        return [*([f"closed file descriptors: {few}"] if closed else []),
                *(f"file descriptor {n}, now another file" for n in other)]  # fmt: skip


class Keeper:
    """Holds what this process was before the user's code was loaded from `paths` against what it is now."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths, self.before = paths, Ambient.now()

    def changes(self, arithmetic: bool = False, *, whole: bool = True) -> str:
        """What has changed, in one sentence, "" for nothing; `arithmetic`: its numbers are others, too.

        What takes a while to look at is looked at only if `whole`.
        """
        found = ["the floating-point environment"] if arithmetic else []
        if whole:
            found += Ambient.now().changes(self.before)
        if children():
            found.append("a process, started by it and not waited for")
        if count := at_work(self.before.threads):
            found.append("a thread that still runs" if count == 1 else f"{count} threads that still run")
        return f"it changes, or leaves behind: {'; '.join(found)}" if found else ""

    def close(self) -> None:
        """Let the user's code do what it does at the end of a process: destroy its static objects."""
        if platform.libc_ver()[0] == "glibc":
            for path in dict.fromkeys(self.paths):
                for function in _finalisers(path):
                    function()


def threads() -> frozenset[str]:
    try:
        return frozenset(os.listdir("/proc/self/task"))
    except OSError:
        return frozenset()


def at_work(known: frozenset[str]) -> int:
    """How many threads other than these are at anything but waiting for work to be given to them."""
    until = time.monotonic() + SETTLE_S
    while busy := [t for t in threads() - known if not _waits(t)]:
        if time.monotonic() > until:
            return len(busy)
        time.sleep(0.002)
    return 0


def _waits(thread: str) -> bool:
    """Whether it sleeps in a futex, as the threads of every pool do."""
    try:
        with open(f"/proc/self/task/{thread}/syscall") as file:
            return file.read().partition(" ")[0] == _FUTEX.get(platform.machine())
    except OSError:
        return True  # it is gone, or this cannot be told here


def children() -> bool:
    """Whether this process has any child, living or not."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "one that is gone"


def _environment() -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for i in range(1 << 16):
        entry = _environ[i] if _environ else None
        if entry is None:
            break
        name, _, value = entry.partition(b"=")
        found[name] = value
    return found


def _status() -> dict[str, int]:
    try:
        with open("/proc/self/status") as file:
            lines = dict(line.split(":", 1) for line in file)
    except (OSError, ValueError):
        return {}
    bases = {"SigBlk": 16, "SigIgn": 16, "SigCgt": 16, "Umask": 8}
    return {name: int(lines[name], base) for name, base in bases.items() if name in lines}


def _handler(number: int) -> bytes:
    held = ctypes.create_string_buffer(160)
    _libc.sigaction(int(number), None, held)
    return held.raw[:8]


def _files() -> dict[int, tuple[int, int] | None]:
    try:
        numbers = [int(n) for n in os.listdir("/proc/self/fd")]
    except OSError:
        return {}
    found: dict[int, tuple[int, int] | None] = dict.fromkeys(numbers)
    for n in (0, 1, 2):
        try:
            what = os.fstat(n)
            found[n] = what.st_dev, what.st_ino
        except OSError:
            found.pop(n, None)  # closed; the listing itself had that number
    return {n: what for n, what in found.items() if what or os.path.exists(f"/proc/self/fd/{n}")}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _finalisers(path: str) -> list[Callable[[], None]]:
    """The functions of a loaded library that the process would call at its end (DT_FINI_ARRAY, last one first)."""
    handle = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)._handle
    base, _, dynamic = (ctypes.c_uint64 * 3).from_address(handle)  # struct link_map
    entries: dict[int, int] = {}
    while (tag := ctypes.c_uint64.from_address(dynamic).value) != 0:
        entries[tag] = ctypes.c_uint64.from_address(dynamic + 8).value
        dynamic += 16
    if _FINI_ARRAY not in entries:
        return []
    table = (ctypes.c_uint64 * (entries.get(_FINI_ARRAY_BYTES, 0) // 8)).from_address(base + entries[_FINI_ARRAY])
    return [ctypes.CFUNCTYPE(None)(address) for address in reversed(table) if address]
