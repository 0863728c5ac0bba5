"""What keeps the store within its limit: who uses which builds now, and which go when it is too large."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import settings

STALE_S = 3600.0  # no build takes this long, so what is older in staging is nobody's
FRESH_S = 60.0  # a build this young may be in use by a process that has not said so yet
ROOM = 0.8  # of the limit: how far an eviction goes down, so that the next one is not the next build's


class Lease:
    """The keys that a process uses, in a file that it holds a lock on for as long as it lives.

    The lock goes with the process, however it ends. A folder that cannot be written to is no error: nothing can be
    evicted there either.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    def add(self, key: str) -> None:
        with contextlib.suppress(OSError, ImportError):
            if self._file is None:
                self._file = self._open()
            os.write(self._file, f"{key}\n".encode())

    def _open(self) -> int:
        import fcntl

        settings.private(self._folder.parent)
        self._folder.mkdir(mode=0o755, exist_ok=True)
        handle, _ = tempfile.mkstemp(dir=self._folder, prefix=f"{os.getpid()}-")
        fcntl.flock(handle, fcntl.LOCK_SH)
        return handle

    def of_all(self) -> set[str]:
        """The keys in use by any live process; the files of dead ones are removed."""
        import fcntl

        used: set[str] = set()
        for path in _entries(self._folder):
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    used.update(Path(path).read_text("ascii").split())
                else:
                    if _age_s(os.fstat(handle).st_mtime) > FRESH_S:  # not one that is about to be locked
                        os.unlink(path)
                finally:
                    os.close(handle)
        return used


def evict(
    root: Path, limit_bytes: int, used: set[str], discard: Callable[[str], None], *, fresh_s: float = FRESH_S
) -> int:
    """Discard the least recently used builds below `root` until the rest fits; the number of bytes freed."""
    for path in _entries(root / "staging"):
        with contextlib.suppress(OSError):
            if _age_s(os.stat(path).st_mtime) > STALE_S:
                shutil.rmtree(path, ignore_errors=True)
    found = []
    for shelf in _entries(root / "objects"):
        for path in _entries(shelf):
            with contextlib.suppress(OSError):
                size = sum(entry.stat().st_size for entry in os.scandir(path))
                found.append((_used_at(path), size, os.path.basename(path)))
    total, freed = sum(size for _, size, _ in found), 0
    if total <= limit_bytes:
        return 0
    for used_at, size, key in sorted(found):
        if total - freed <= limit_bytes * ROOM:
            break
        if key not in used and _age_s(used_at) > fresh_s:
            discard(key)
            freed += size
    return freed


def _age_s(when: float) -> float:
    """How long ago that was. What lies ahead was written before the clock was put back: it is not of now either."""
    return abs(time.time() - when)


def _used_at(path: str) -> float:
    try:
        return os.stat(os.path.join(path, "meta.json")).st_mtime
    except FileNotFoundError:
        return 0.0  # no build at all: the first to go


def _entries(folder: str | Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            yield from [entry.path for entry in entries]
