"""Memory that C++ code under trial allocates through torch by itself: guarded and poisoned as a launcher's outputs are.

`allocator.cpp` is a c10 allocator that asks a callback. The notebook's side builds it once per torch, in the
background; a trial before that goes without it. The child's side puts it in place while a step runs.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

from .guard import POISON

TEXT = Path(__file__).with_name("allocator.cpp")
# Of one child. Nothing is ever given back, so that the rest of a kernel that allocates without end is torch's own.
MOST_BLOCKS, MOST_BYTES = 2048, 1 << 30

_path = ""
_thread: threading.Thread | None = None
_mutex = threading.Lock()


def prepare() -> None:
    """Have the library built or looked up in the background, once; returns at once. No failure is raised."""
    global _thread
    with _mutex:
        if _thread is None:
            _thread = threading.Thread(target=_build, name="workbench-allocator", daemon=True)
            _thread.start()


def path() -> str:
    """The library, "" while there is none; one that was cleared from the cache is built again."""
    global _path, _thread
    if _path and not os.path.exists(_path):
        with _mutex:
            _path, _thread = "", None
        prepare()
    return _path


def wait(limit_s: float = 120.0) -> bool:
    """Wait until it is there or cannot be, for tests and benchmarks; whether it is there."""
    prepare()
    assert _thread is not None
    _thread.join(limit_s)
    return bool(_path)


def _build() -> None:
    global _path
    from ..build import cpp, process
    from ..build import flags as arguments
    from ..errors import WorkbenchError

    process.in_background()
    try:
        text = TEXT.read_text(encoding="utf-8")
        flags = [arguments.BEYOND]
        _path = cpp.compile(text, kind="host", flags=flags, file=TEXT.name, background=True).path
    except (WorkbenchError, OSError):
        return  # outputs are then guarded only where launchers make them
    except KeyboardInterrupt:
        return  # this process ends


_Ask = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)


class Allocator:
    """In the child: between `with` and its end, `allocate(bytes)` gives the memory of every tensor that is made.

    >>> with Allocator(path, allocate):
    ...     torch.empty(3)

    An `allocate` that returns 0 or raises MemoryError leaves it to torch.
    """

    def __init__(self, path: str, allocate: Callable[[int], int]) -> None:
        self._library = ctypes.CDLL(path)
        self._library.wb_guard.argtypes = [_Ask, ctypes.c_uint32]
        self._library.wb_guard.restype = None
        self._lock = threading.Lock()  # kernels allocate in threads of their own
        self._poison = int.from_bytes(POISON, "little")
        self._blocks = self._bytes = 0

        def ask(nbytes: int) -> int:
            with self._lock:
                if self._blocks >= MOST_BLOCKS or self._bytes + nbytes > MOST_BYTES:
                    return 0
                self._blocks, self._bytes = self._blocks + 1, self._bytes + nbytes
                try:
                    return allocate(nbytes)
                except MemoryError:
                    return 0  # torch says it better

        self._ask = _Ask(ask)

    def __enter__(self) -> None:
        self._library.wb_guard(self._ask, self._poison)

    def __exit__(self, *_: object) -> None:
        self._library.wb_guard(_Ask(), self._poison)
