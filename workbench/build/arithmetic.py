"""The floating-point environment of this thread: how is rounded, what traps, what becomes of denormals.

A library that was linked with -ffast-math turns denormals off for the whole process when it is loaded. So whoever
loads the user's code puts things back.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_STICKY = 0x3F  # of mxcsr: flags that any arithmetic sets
_KNOWN = platform.machine() in {"x86_64", "aarch64"}
try:
    _libm: ctypes.CDLL | None = ctypes.CDLL("libm.so.6") if _KNOWN else None
except OSError:
    _libm = None


class Arithmetic:
    """Puts the floating-point environment back as it was; `changed` says afterwards whether that was needed.

    >>> with Arithmetic() as before:
    ...     ctypes.CDLL(path)
    >>> before.changed
    False

    Where it cannot be read nothing is ever changed.
    """

    changed = False

    def __enter__(self) -> Self:
        self._was = _read()
        return self

    def __exit__(self, *_: object) -> None:
        self.changed = _essence(_read()) != _essence(self._was)
        if self.changed and _libm is not None:
            _libm.fesetenv(self._was)


def _read() -> bytes:
    held = ctypes.create_string_buffer(64)
    if _libm is not None:
        _libm.fegetenv(held)
    return held.raw


def _essence(environment: bytes) -> tuple[bytes, int]:
    """What matters of a fenv_t."""
    if platform.machine() != "x86_64":
        return environment[:4], 0
    return environment[:2], struct.unpack_from("<I", environment, 28)[0] & ~_STICKY
