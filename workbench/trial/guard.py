"""Memory that notices who touches it: data between unreadable pages, with canary bytes in what is left over.

A run of bytes ends at the end of its last page, or up to 63 bytes before, so that it starts on the 64-byte boundary
that torch gives every tensor. Nothing here knows about ops or steps. `gpu_guard` does the same in the memory of a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, replace

import torch

from .protocol import Meta

PAGE = mmap.PAGESIZE
GUARD = 1 << 20  # unreadable bytes on each side: address space only
ALIGNMENT = 64
# All read as NaN in every floating dtype of two bytes and more, at each even address, and as unlikely integers.
POISON = bytes.fromhex("e5fffb7f")
# Around what may be written: a number of usual size in every floating dtype (-22.9 as float32). NaN would hide
# `out[n] += y`, whose result has the same bits.
CANARY = bytes.fromhex("9140b7c1")
# Around what may only be read: NaN, which shows in all that is made of it.
CANARY_OF_ARGUMENTS = bytes.fromhex("d3fff97f")
PROTECTS = True  # what is not writable cannot be written to: no need to look

_PROT_NONE, _PROT_READ, _PROT_BOTH = 0, 1, 3
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.wmemset.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t]
_libc.wmemset.restype = ctypes.c_void_p


@dataclass(frozen=True)
class Room:
    """Where `nbytes` lie in `mapped` bytes of whole pages: `front` bytes after their start."""

    front: int
    nbytes: int
    mapped: int

    @property
    def back(self) -> int:
        return self.mapped - self.front - self.nbytes


def room(nbytes: int, residue: int = 0) -> Room:
    """The room for `nbytes` whose address leaves `residue` when divided by 64.

    >>> room(2460)
    Room(front=1600, nbytes=2460, mapped=4096)
    """
    back = -(nbytes + residue) % ALIGNMENT
    mapped = max(PAGE, -(-(nbytes + back) // PAGE) * PAGE)
    return Room(mapped - back - nbytes, nbytes, mapped)


@dataclass(frozen=True)
class Block:
    """A guarded run of bytes: `start` is the address of its first byte; `tensors` are the names of what lies in it."""

    start: int
    room: Room
    tensors: tuple[tuple[str, Meta | None], ...]  # metadata is None where only the name is known
    writable: bool
    argument: bool = False
    device: bool = False  # its address is one of a GPU
    canary: bytes = CANARY

    @property
    def end(self) -> int:
        return self.start + self.room.nbytes

    @property
    def pages(self) -> int:
        return self.start - self.room.front


def allocate(nbytes: int) -> Block:
    """A writable block full of poison, for an output or workspace."""
    place = room(nbytes)
    pages = _reserve(place.mapped)
    _check(_libc.mprotect(pages, place.mapped, _PROT_BOTH), "mprotect")
    _libc.wmemset(pages, int.from_bytes(CANARY, "little", signed=True), place.mapped // 4)
    block = Block(pages + place.front, place, (), writable=True)
    _libc.wmemset(block.start, int.from_bytes(POISON, "little", signed=True), nbytes // 4)
    tail = nbytes % 4
    ctypes.memmove(block.end - tail, POISON, tail)
    return block


def open_image(fd: int, position: int, place: Room, tensors: tuple[tuple[str, Meta], ...], writable: bool) -> Block:
    """A block whose pages are those of a file from `position` on; writes to it never reach the file."""
    pages = _reserve(place.mapped)
    protection = _PROT_BOTH if writable else _PROT_READ
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if _libc.mmap(pages, place.mapped, protection, flags, fd, position) != pages:
        raise MemoryError(f"mmap: {os.strerror(ctypes.get_errno())}")
    canary = CANARY if writable else CANARY_OF_ARGUMENTS
    if writable:
        ctypes.memmove(pages, _canary(place.front, 0, canary), place.front)
        begin = place.front + place.nbytes
        ctypes.memmove(pages + begin, _canary(place.back, begin, canary), place.back)
    return Block(pages + place.front, place, tensors, writable, argument=True, canary=canary)


def freeze(block: Block) -> Block:
    """The same block, now read-only."""
    _check(_libc.mprotect(block.pages, block.room.mapped, _PROT_READ), "mprotect")
    return replace(block, writable=False)


def thaw(block: Block) -> Block:
    _check(_libc.mprotect(block.pages, block.room.mapped, _PROT_BOTH), "mprotect")
    return replace(block, writable=True)


def image(address: int, place: Room) -> tuple[bytes | memoryview, ...]:
    """The pages that a file must hold for `open_image`, in parts: the bytes at `address` between canaries."""
    front = _canary(place.front, 0, CANARY_OF_ARGUMENTS)
    return front, _memory(address, place.nbytes), _canary(place.back, place.front + place.nbytes, CANARY_OF_ARGUMENTS)


def damage(block: Block) -> tuple[str, int, int] | None:
    """What was written around a block: "before" or "after", how far from the data, how many bytes; None for nothing."""
    front = ctypes.string_at(block.pages, block.room.front)
    back = ctypes.string_at(block.end, block.room.back)
    if back != (wanted := _canary(block.room.back, block.room.front + block.room.nbytes, block.canary)):
        changed = [i for i, (a, b) in enumerate(zip(back, wanted, strict=True)) if a != b]
        return "after", changed[0], changed[-1] - changed[0] + 1
    if front != (wanted := _canary(block.room.front, 0, block.canary)):
        changed = [i for i, (a, b) in enumerate(zip(front, wanted, strict=True)) if a != b]
        return "before", block.room.front - changed[0], changed[-1] - changed[0] + 1
    return None


def tensor(block: Block, meta: Meta) -> torch.Tensor:
    """A tensor on the bytes of a block."""
    return meta.tensor(_bytes_at(block.start, block.room.nbytes).untyped_storage())


def content(tensor: torch.Tensor) -> memoryview:
    """The bytes from the first element to the last one, gaps included; valid as long as the tensor is."""
    return _memory(tensor.data_ptr(), Meta.of(tensor).extent * tensor.element_size())


def _memory(address: int, count: int) -> memoryview:
    """Bytes where they lie; `ctypes.string_at` would copy them, and takes no more than 2**31 - 1."""
    return memoryview((ctypes.c_ubyte * count).from_address(address)) if count else memoryview(b"")


def unwritten(tensor: torch.Tensor, block: Block) -> int:
    """How many elements of `tensor`, which lies in `block`, still hold the poison."""
    data = _bytes_at(tensor.data_ptr(), Meta.of(tensor).extent * tensor.element_size())
    return poisoned(tensor, data, tensor.data_ptr() - block.start)


def poisoned(tensor: torch.Tensor, data: torch.Tensor, position: int) -> int:
    """How many elements of `tensor` are poison; `data` are the bytes of its extent, `position` bytes into a block."""
    if not tensor.numel():
        return 0
    size = min(tensor.element_size(), 8)
    period = max(4 // size, 1)  # elements after which the poison repeats
    begin = position // size % period
    flat = data.view(_INTEGERS[size])
    poison = torch.frombuffer(bytearray(POISON * 4), dtype=_INTEGERS[size])[begin:]
    if period == 1:
        same = flat == int(poison[0])
    else:
        same = torch.empty(flat.shape, dtype=torch.bool, device=flat.device)
        for k in range(min(period, len(flat))):
            same[k::period] = flat[k::period] == int(poison[k])
    if tensor.element_size() > size:  # complex128 is two of them
        same = same.view(-1, 2).all(-1)
    return int(torch.count_nonzero(same.as_strided(tensor.shape, tensor.stride(), 0)))


def byte_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of `tensor` in bytes, with one more dimension for the bytes of an element."""
    return (*(s * tensor.element_size() for s in tensor.stride()), 1)


def changed_byte(block: Block, original: bytearray, allowed: list[torch.Tensor]) -> int | None:
    """The first byte of `block` that differs from `original` and belongs to no tensor in `allowed`."""
    if not original:
        return None
    was, now = torch.frombuffer(original, dtype=torch.uint8), _bytes_at(block.start, block.room.nbytes)
    return None if torch.equal(was, now) else first_change(was, now, block, allowed)


def first_change(was: torch.Tensor, now: torch.Tensor, block: Block, allowed: list[torch.Tensor]) -> int | None:
    """The first byte of `block` in which these two differ and that belongs to no tensor in `allowed`."""
    differs = was != now
    for tensor in allowed:
        first = tensor.data_ptr() - block.start
        differs.as_strided((*tensor.shape, tensor.element_size()), byte_strides(tensor), first).fill_(False)
    places = differs.nonzero()
    return int(places[0]) if len(places) else None


def index_of(meta: Meta, element: int) -> tuple[int, ...] | None:
    """The index of the element that lies `element` elements after the start of its storage; None if none does.

    >>> index_of(Meta(torch.float32, (5, 123), (123, 1)), 125)
    (1, 2)
    """
    rest, index = element - meta.offset, [0] * len(meta.shape)
    for d in sorted(range(len(meta.shape)), key=lambda d: -meta.strides[d]):
        if meta.strides[d]:
            index[d] = min(max(rest // meta.strides[d], 0), meta.shape[d] - 1)
            rest -= index[d] * meta.strides[d]
    return tuple(index) if rest == 0 and meta.numel else None


def _bytes_at(address: int, count: int) -> torch.Tensor:
    if not count:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer((ctypes.c_ubyte * count).from_address(address), dtype=torch.uint8)


def _canary(count: int, position: int, pattern: bytes) -> bytes:
    """`count` canary bytes as they lie `position` bytes after the start of a page."""
    shift = position % 4
    return (pattern * (count // 4 + 2))[shift : shift + count]


def _reserve(mapped: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    address = _libc.mmap(None, mapped + 2 * GUARD, _PROT_NONE, flags, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"mmap of {mapped} bytes: {os.strerror(ctypes.get_errno())}")
    return address + GUARD


def _check(code: int, what: str) -> None:
    if code:
        raise MemoryError(f"{what}: {os.strerror(ctypes.get_errno())}")
