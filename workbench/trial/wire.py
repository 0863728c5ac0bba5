"""How messages cross between the notebook, its worker and the worker's children.

Tensors never cross in a pickle: their bytes lie in memory files, whose descriptors travel beside the message.
"""

from __future__ import annotations

import array
import io
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .protocol import Meta

HEADER = struct.Struct("!QId")  # length of the payload, how many descriptors, a limit in seconds
FRAME = struct.Struct("!I")
PRELOAD = -1.0  # as a limit: the payload names a module to import, and nobody waits for an answer
TWIN = -2.0  # as a limit: fork a worker that answers on the first descriptor and complains into the second
COMPILES, COMPILED = b"compiles", b"compiled"  # frames between which a job's clock stands still
DESCRIPTORS_AT_ONCE = 200  # the kernel takes 253 in one message


class MemoryFile:
    """A file in memory without a name, gone when the last process lets go of it."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _anonymous_file() if fd is None else fd

    def __del__(self) -> None:
        try:
            os.close(self.fd)
        except (OSError, AttributeError, TypeError):
            pass


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("workbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            pass
    directory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


@dataclass(frozen=True)
class Stored:
    """A tensor whose bytes lie at `position` of the result file."""

    meta: Meta
    position: int


@dataclass(frozen=True)
class Done:
    """A step that came to an end, as the child says it: a `Result` whose tensors are `Stored`."""

    step: int
    status: str
    detail: str = ""
    outputs: tuple = ()
    mutated: dict[str, Stored] = field(default_factory=dict)
    unwritten: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Order:
    """A job with all that the child needs to run it as the notebook would.

    The job is still packed, since its classes may live where only `path` leads: `files` are the memory files in it,
    `loose` the tensors.
    """

    job: bytes
    files: tuple[MemoryFile, ...]
    loose: Any  # a Parcel
    results: MemoryFile
    mark: bytes  # written into the output after each step
    environment: dict[str, str]
    path: list[str]
    directory: str
    threads: int
    allocator: str = ""  # the library that guards what kernels allocate by themselves
    device: str = "cpu"


@dataclass(frozen=True)
class Reply:
    """What the worker saw of one child; `printed` is the beginning of its output, `printed_bytes` counts all of it."""

    frames: tuple[bytes, ...]
    fault: bytes
    ended: bool  # it said that all is done
    exit: int  # as os.waitstatus_to_exitcode says it: below 0 is a signal; nothing if it ended
    hung: bool
    printed: bytes
    last_printed: bytes
    printed_bytes: int
    seconds: float
    state: str = ""  # of one that hung, as /proc has it: "Z" where its main thread was gone
    compiled: bool = False  # at its end it was still compiling


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, swap: Callable[[object], object] | None) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.swap = swap
        self.files: dict[int, tuple[int, MemoryFile]] = {}

    def persistent_id(self, item: object) -> object:
        if isinstance(item, MemoryFile):
            return "file", self.files.setdefault(item.fd, (len(self.files), item))[0]
        return self.swap(item) if self.swap else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, files: Sequence[MemoryFile], swapped: Callable[[Any], object] | None) -> None:
        super().__init__(io.BytesIO(data))
        self.files, self.swapped = files, swapped

    def persistent_load(self, mark: tuple) -> object:
        if mark[0] == "file":
            return self.files[mark[1]]
        assert self.swapped is not None
        return self.swapped(mark)


def pack(value: object, swap: Callable[[object], object] | None = None) -> tuple[bytes, tuple[MemoryFile, ...]]:
    """`value` as bytes, and the memory files in it; what `swap` returns for an object stands in its place."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, swap)
    pickler.dump(value)
    return buffer.getvalue(), tuple(file for _, file in pickler.files.values())


def unpack(data: bytes, files: Sequence[MemoryFile], swapped: Callable[[Any], object] | None = None) -> Any:
    """The value again; `swapped` gets what `swap` had returned."""
    return _Unpickler(data, files, swapped).load()


def send(channel: socket.socket, data: bytes, fds: Sequence[int] = (), limit_s: float = 0.0) -> None:
    channel.sendall(HEADER.pack(len(data), len(fds), limit_s))
    for start in range(0, len(fds), DESCRIPTORS_AT_ONCE):
        some = array.array("i", fds[start : start + DESCRIPTORS_AT_ONCE])
        channel.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, some)])
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[bytes, list[int], float]:
    """The next message: payload, descriptors, limit. EOFError when the other side is gone."""
    length, count, limit_s = HEADER.unpack(_exactly(channel, HEADER.size))
    fds = array.array("i")
    while len(fds) < count:
        some = min(count - len(fds), DESCRIPTORS_AT_ONCE)
        byte, ancillary, *_ = channel.recvmsg(1, socket.CMSG_SPACE(some * fds.itemsize))
        if not byte:
            raise EOFError
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if not ancillary:
            raise EOFError("descriptors got lost on their way")
    return _exactly(channel, length), list(fds), limit_s


def _exactly(channel: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    view = memoryview(buffer)
    while view:
        got = channel.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(buffer)
