"""The line of the user's text that stands behind an address of a shared object.

What runs is compiled without debug information. Only after a crash the same text is compiled once more with it: that
leaves the code as it is, byte for byte, and where it should not, no line is told.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence

from .. import settings
from ..errors import WorkbenchError
from . import process
from .result import Build

WITH_LINES = ("-g1", "-gdwarf-4")  # with version 5 g++ 12 and gas disagree on the name of standard input
LIMIT_S = 20.0
_EXECUTABLE = 4


def find(
    trace: Sequence[tuple[str, int, bool]], build: Build, again: Callable[[], Build], file: str, folders: Sequence[str]
) -> str:
    """The innermost place in the user's text among those of `trace` that lie in `build`, "" where none can be told.

    >>> find((("/tmp/body.so", 4432, False),), build, lambda: compile_again("-g1"), "cell [3]", ["/home/me"])
    'line 12'

    `again` compiles the same with line information; `file` is the cell, `folders` are those of the user's headers,
    whose names are told. A place that called what is not the user's is 'called on line 12'.
    """
    found = [(address, called) for path, address, called in trace if path == build.path]
    program = shutil.which("addr2line", path=settings.programs())
    if not found or not program:
        return ""
    try:
        other = again()
        if _code(other.path) != _code(build.path):
            return ""
        asked = [program, "-a", "-i", "-e", other.path, *(f"{address:#x}" for address, _ in found)]
        folder = tempfile.gettempdir()
        done = process.run(asked, cwd=folder, temporary=folder, limit_s=LIMIT_S)
    except (WorkbenchError, TimeoutError, OSError):
        return ""
    for (_, called), frames in zip(found, _frames(done.log), strict=False):
        for name, line in frames:
            if name == file or name.endswith(f"/{file}"):
                return f"called on line {line}" if called else f"line {line}"
            if os.path.dirname(name) in folders:
                return f"{'called in ' if called else ''}{os.path.basename(name)}, line {line}"
    return ""


def _frames(log: str) -> list[list[tuple[str, int]]]:
    """For each address the (file, line) that addr2line told, the innermost of inlined functions first."""
    found: list[list[tuple[str, int]]] = []
    for text in log.splitlines():
        if text.startswith("0x"):
            found.append([])
            continue
        name, _, line = text.partition(" (discriminator")[0].rpartition(":")
        if found and line.isdigit() and int(line):
            found[-1].append((name, int(line)))
    return found


def _code(path: str) -> list[tuple[int, bytes]]:
    """What of an ELF file is executed: the addresses and bytes of such sections."""
    with open(path, "rb") as file:
        data = file.read()

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    table, size, count = number(40, 8), number(58, 2), number(60, 2)
    found = []
    for at in range(table, table + size * count, size):
        if number(at + 8, 8) & _EXECUTABLE:
            address, begin, length = (number(at + n, 8) for n in (16, 24, 32))
            found.append((address, data[begin : begin + length]))
    return found
