"""Tensors on their way to the worker: one immutable memory file, laid out in pages that the child maps as they are."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from . import guard
from .protocol import Given, Meta
from .wire import MemoryFile


@dataclass(frozen=True)
class Parcel:
    """Tensors written once, to be used by any number of steps and jobs.

    >>> parcel = Parcel.of({"x": x, "w": w})
    >>> Step("lab::rmsnorm", (parcel["x"], parcel["w"], 1e-6))

    Views of one base stay views of one base. `rooms` are the storages: where each lies in the file, and how; `tensors`
    says for each name its storage and its metadata, the offset counted from what the file holds of that storage.
    """

    file: MemoryFile
    rooms: tuple[tuple[int, guard.Room], ...]
    tensors: dict[str, tuple[int, Meta]]

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> Parcel:
        """Raises TypeError for what is no plain strided CPU tensor."""
        settled = {name: _settled(name, t) for name, t in tensors.items()}
        groups: dict[int, list[str]] = {}
        for name, tensor in settled.items():
            groups.setdefault(tensor.untyped_storage()._cdata if tensor.numel() else -id(tensor), []).append(name)
        file, rooms, table, position = MemoryFile(), [], {}, 0
        for number, names in enumerate(groups.values()):
            spans = [_span(settled[n]) for n in names]
            first, end = min(s[0] for s in spans), max(s[1] for s in spans)
            if len({settled[n].element_size() for n in names}) > 1:  # each view must start at a whole element
                first -= (first - settled[names[0]].untyped_storage().data_ptr()) % 16
            place = guard.room(end - first, first % guard.ALIGNMENT)
            _write(file.fd, guard.image(first, place), position)
            rooms.append((position, place))
            position += place.mapped
            for name, (start, _) in zip(names, spans, strict=True):
                t = settled[name]
                offset = (start - first) // t.element_size()
                table[name] = (number, Meta(t.dtype, tuple(t.shape), tuple(t.stride()), offset))
        _seal(file.fd)
        return cls(file, tuple(rooms), table)

    def __getitem__(self, name: str) -> Given:
        if name not in self.tensors:
            raise KeyError(name)
        return Given(self, name)

    def bytes_of(self, number: int) -> bytearray:
        """What the file holds of the storage `number`."""
        position, place = self.rooms[number]
        data, position = bytearray(place.nbytes), position + place.front
        view = memoryview(data)
        while view:  # Linux reads and writes less than 2**31 bytes at a time
            count = os.preadv(self.file.fd, [view], position)
            position, view = position + count, view[count:]
        return data


def _settled(name: str, tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise TypeError(f"{name} is a {tensor.layout} tensor on {tensor.device}: the worker takes plain CPU tensors")
    return tensor.resolve_conj().resolve_neg()


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first byte and of the one after the last."""
    start = tensor.data_ptr()
    return start, start + Meta.of(tensor).extent * tensor.element_size()


def _write(fd: int, parts: Iterable[bytes | memoryview], position: int) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            count = os.pwrite(fd, view, position)
            position, view = position + count, view[count:]


def _seal(fd: int) -> None:
    """No process that holds the file can change it any more, a child gone wild included."""
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except (AttributeError, OSError):  # not a memfd
        pass
