"""Where in the user's code a process stood when it died: addresses in its shared objects, from what `faults` wrote.

The line is told by whoever has the compiler: nothing here reads debug information.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .faults import Fault
from .protocol import Trace

MOST = 8


@dataclass(frozen=True)
class _Code:
    """An executable piece of a file in memory: `[start, end)` is the file from `position` on."""

    path: str
    start: int
    end: int
    position: int


def of(fault: Fault, paths: Sequence[str]) -> Trace:
    """The places in these libraries where the fault's thread stood, and from where it had called, the innermost first.

    >>> of(fault, ["/tmp/body.so"])
    (('/tmp/body.so', 4432, False),)

    Return addresses are found by looking through the stack for words that follow a call.
    """
    code = [c for c in _mapped(fault.maps) if c.path in paths]
    if not code:
        return ()
    found = [(c.path, a, False) for c, a in _in(code, (fault.instruction,))]
    for c, address in _in(code, fault.words):
        if len(found) == MOST:
            break
        if _follows_a_call(c.path, address - c.start + c.position):
            found.append((c.path, address - 1, True))
    return tuple((path, _address(path, a - c.start + c.position), called) for path, a, called in found
                 for c in code if c.path == path and c.start <= a < c.end)  # fmt: skip


def _in(code: Sequence[_Code], words: Sequence[int]) -> Iterator[tuple[_Code, int]]:
    for word in words:
        for c in code:
            if c.start <= word < c.end:
                yield c, word


def _mapped(maps: str) -> Iterator[_Code]:
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1]:
            start, _, end = fields[0].partition("-")
            yield _Code(fields[5], int(start, 16), int(end, 16), int(fields[2], 16))


def _follows_a_call(path: str, position: int) -> bool:
    """Does the instruction before this place of a file look like a call (of x86)?"""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, position - 7))
            before = file.read(min(7, position)).rjust(7, b"\0")
    except OSError:
        return False
    return before[2] == 0xE8 or any(before[7 - n] == 0xFF and before[8 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))


def _address(path: str, position: int) -> int:
    """The address that the linker gave to what lies at this place of an ELF file."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            (table,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
            file.seek(table)
            segments = file.read(size * count)
    except (OSError, struct.error):
        return position
    for n in range(count):
        (kind,) = struct.unpack_from("<I", segments, n * size)
        begin, address, _, length = struct.unpack_from("<QQQQ", segments, n * size + 8)
        if kind == 1 and begin <= position < begin + length:
            return position - begin + address
    return position
