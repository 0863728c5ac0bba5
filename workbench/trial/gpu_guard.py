"""Memory of a GPU that notices who wrote to it: data between red zones of a known pattern, looked at after each step.

A GPU has no pages that one could protect here, so that a write to a read-only input is found by comparing it with
what it was. The device may be "cpu", so that all of this runs without a GPU. Nothing here knows about ops or steps.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field, replace

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import guard
from .guard import ALIGNMENT, CANARY, CANARY_OF_ARGUMENTS, POISON, Block, Room
from .protocol import Meta

# A grid that is twice too large writes as much behind its output as into it.
LEAST_ZONE, MOST_ZONE = 256 << 10, 16 << 20
IMAGES_BYTES = 1 << 30
_WORD = 4

stand_in_fault = ""  # what the device "cpu" says when it is asked, in place of a lost context


def room(nbytes: int, residue: int = 0, *, zone: int | None = None) -> Room:
    """The room for `nbytes` between two red zones, in a region that begins at a multiple of 64.

    >>> room(2460)
    Room(front=262144, nbytes=2460, mapped=526748)

    A zone is as large as the data, within limits, or of `zone` bytes.
    """
    if zone is None:
        zone = min(max(LEAST_ZONE, -(-nbytes // ALIGNMENT) * ALIGNMENT), MOST_ZONE)
    front = zone + residue
    return Room(front, nbytes, -(-(front + nbytes + zone) // _WORD) * _WORD)


@dataclass
class Memory:
    """What `guard` is for a child, in the memory of `device`: the same functions, on the same blocks.

    >>> memory = Memory("cuda:0")
    >>> block = memory.allocate(4 * 615)
    >>> memory.tensor(block, Meta(torch.float32, (5, 123), (123, 1)))

    `bare`: no zones and no poison, for tools that watch each allocation themselves.
    """

    device: str
    bare: bool = False
    regions: dict[int, torch.Tensor] = field(default_factory=dict)  # all bytes of a block, by its address
    former: dict[int, torch.Tensor] = field(default_factory=dict)  # what the data of a block must still be
    images: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)  # of files, by (file, position)

    PROTECTS = False  # every block must be looked at

    def allocate(self, nbytes: int) -> Block:
        """A writable block full of poison, for an output or workspace."""
        block = self._block(self._room(nbytes), CANARY)
        if not self.bare:
            with _disable_current_modes():
                _fill(self._data(block), POISON)
        self.synchronise()  # the code under trial may use a stream of its own
        return block

    def open_image(self, fd: int, position: int, place: Room, tensors: tuple, writable: bool) -> Block:
        """A block that holds what lies in a file as `guard.image` made it."""
        place_here = self._room(place.nbytes, place.front % ALIGNMENT)
        canary = CANARY if writable else CANARY_OF_ARGUMENTS
        block = self._block(place_here, canary)
        with _disable_current_modes():
            data = self._image(fd, position + place.front, place.nbytes)
            self._data(block).copy_(data)
            if not self.bare:
                self.former[block.start] = data
        return replace(block, tensors=tensors, writable=writable, argument=True, canary=canary)

    def _image(self, fd: int, position: int, nbytes: int) -> torch.Tensor:
        """What lies in a file, read once for all steps of a job: bringing them here takes longer than most kernels."""
        if (fd, position) not in self.images:
            if sum(d.numel() for d in self.images.values()) + nbytes > IMAGES_BYTES:
                self.images.clear()
            data = torch.empty(nbytes, dtype=torch.uint8)
            _read(fd, position, data)
            self.images[fd, position] = data.to(self.device, copy=True)
        return self.images[fd, position]

    def freeze(self, block: Block) -> Block:
        """The same block, to stay as it is from now on."""
        if not self.bare:
            with _disable_current_modes():
                self.former[block.start] = self._data(block).clone()
        return replace(block, writable=False)

    def thaw(self, block: Block) -> Block:
        self.former.pop(block.start, None)
        return replace(block, writable=True)

    def release(self, block: Block) -> None:
        """Its memory is torch's again as soon as no tensor holds it."""
        self.regions.pop(block.start, None)
        self.former.pop(block.start, None)

    def clear(self) -> None:
        self.regions.clear()
        self.former.clear()
        self.images.clear()

    def tensor(self, block: Block, meta: Meta) -> torch.Tensor:
        """A tensor on the bytes of a block."""
        region = self.regions[block.start]
        first = block.start - region.data_ptr()
        assert first % meta.dtype.itemsize == 0, "a tensor begins at a multiple of its element size"
        offset = first // meta.dtype.itemsize + meta.offset
        with _disable_current_modes():
            return replace(meta, offset=offset).tensor(region.untyped_storage())

    def damage(self, block: Block) -> tuple[str, int, int] | None:
        """As `guard.damage`; what was found is repaired, so that no later step is blamed for it."""
        region, place = self.regions[block.start], block.room
        if self.bare or not region.numel():
            return None
        pattern = block.canary
        front, back = region[: place.front], region[place.front + place.nbytes :]
        bad = torch.stack(
            [_differs(front, pattern, 0).any(), _differs(back, pattern, place.front + place.nbytes).any()]
        )
        before, after = bad.tolist()
        if not (before or after):
            return None
        if after:
            changed = _differs(back, pattern, place.front + place.nbytes).nonzero()
            found = "after", int(changed[0]), int(changed[-1] - changed[0]) + 1
        else:
            changed = _differs(front, pattern, 0).nonzero()
            found = "before", place.front - int(changed[0]), int(changed[-1] - changed[0]) + 1
        front.copy_(_pattern(pattern, place.front, 0, region.device))
        back.copy_(_pattern(pattern, place.back, place.front + place.nbytes, region.device))
        return found

    def changed_byte(self, block: Block, original: bytearray, allowed: list[torch.Tensor]) -> int | None:
        """As `guard.changed_byte`; the original is this one's own."""
        was = self.former.get(block.start)
        if was is None or torch.equal(was, self._data(block)):
            return None
        self.images.clear()  # code that writes where it should not may have come by there, too
        return guard.first_change(was, self._data(block), block, allowed)

    def unwritten(self, tensor: torch.Tensor, block: Block) -> int:
        """How many elements of `tensor`, which lies in `block`, still hold the poison."""
        return 0 if self.bare else guard.poisoned(tensor, _flat(tensor), tensor.data_ptr() - block.start)

    def poison(self, tensor: torch.Tensor) -> None:
        """Fill what lies in no block."""
        data = _flat(tensor)
        if data.storage_offset() % _WORD == 0:
            _fill(data, POISON)

    def flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """The bytes from the first element to the last one, gaps included, where they are."""
        return _flat(tensor)

    def content(self, tensor: torch.Tensor) -> memoryview:
        """The same, on the CPU."""
        if not tensor.numel():
            return memoryview(b"")
        data = _flat(tensor).cpu()
        held = (ctypes.c_ubyte * data.numel()).from_address(data.data_ptr())
        held.kept = data
        return memoryview(held).cast("B")

    def synchronise(self) -> None:
        """Wait for all work of the device. Raises what torch says when some of it failed."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        elif stand_in_fault:
            raise RuntimeError(stand_in_fault)

    def warm(self) -> None:
        """Make the context and load torch's own kernels that a step needs."""
        block = self.allocate(24)
        made = self.tensor(block, Meta(torch.float32, (2, 3), (3, 1)))
        self.unwritten(made, block)
        self.freeze(block)
        self.regions[block.start].fill_(0)
        self.damage(block)
        self.changed_byte(block, bytearray(), [made[:1]])
        self.content(made)
        self.clear()

    def _room(self, nbytes: int, residue: int = 0) -> Room:
        return room(nbytes, residue, zone=0 if self.bare else None)

    def _block(self, place: Room, pattern: bytes) -> Block:
        with _disable_current_modes():
            region = torch.empty(max(place.mapped, _WORD), dtype=torch.uint8, device=self.device)
            if not self.bare:
                region.view(torch.int32).fill_(int.from_bytes(pattern, "little", signed=True))
        block = Block(region.data_ptr() + place.front, place, (), writable=True, device=True)
        self.regions[block.start] = region
        return block

    def _data(self, block: Block) -> torch.Tensor:
        first = block.room.front
        return self.regions[block.start][first : first + block.room.nbytes]


def _read(fd: int, position: int, into: torch.Tensor) -> None:
    view = memoryview((ctypes.c_ubyte * into.numel()).from_address(into.data_ptr()))
    while view:
        count = os.preadv(fd, [view], position)
        if not count:
            raise EOFError("the file of a parcel is too short")
        position, view = position + count, view[count:]


def _fill(data: torch.Tensor, pattern: bytes) -> None:
    whole = data.numel() // _WORD * _WORD
    if whole:
        data[:whole].view(torch.int32).fill_(int.from_bytes(pattern, "little", signed=True))
    data[whole:].copy_(torch.tensor(list(pattern[: data.numel() - whole]), dtype=torch.uint8))


def _differs(data: torch.Tensor, pattern: bytes, position: int) -> torch.Tensor:
    """Which bytes differ from the pattern as it lies `position` bytes after the start of a region."""
    return data != _pattern(pattern, data.numel(), position, data.device)


def _pattern(pattern: bytes, count: int, position: int, device: torch.device) -> torch.Tensor:
    words = -(-count // _WORD) + 1
    whole = torch.full((words,), int.from_bytes(pattern, "little", signed=True), dtype=torch.int32, device=device)
    return whole.view(torch.uint8)[position % _WORD :][:count]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from the first element to the last one, gaps included."""
    extent = Meta.of(tensor).extent
    with _disable_current_modes():
        return tensor.detach().as_strided((extent,), (1,)).view(torch.uint8)
