"""Is there room for a case? Asked before its tensors are made: a machine that runs out kills the notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from ..case import Case

GB = 1e9
COPIES = 2  # the case's own tensors, and those that a call is given
BITS = {"bool": 8, "float8_e4m3fn": 8, "float8_e5m2": 8, "complex64": 64, "complex128": 128}


class NoRoomError(Exception):
    """The case does not fit; the message says what it needs and what there is."""


def needs(case: Case) -> int:
    """Bytes of a case's tensors, from their shapes alone; 0 where these are not known before they are made."""
    return sum(_bytes(one) for _, one in getattr(case.recipe, "form", ()))


def _bytes(one: object) -> int:
    if not isinstance(one, tuple):
        return 0
    if len(one) == 3 and isinstance(one[0], str) and isinstance(one[1], tuple):
        digits = "".join(c for c in one[0] if c.isdigit())
        return math.prod(one[1]) * BITS.get(one[0], int(digits or 32)) // 8
    return sum(map(_bytes, one))


def free_bytes(device: str) -> int:
    """What can still be allocated: on a GPU by its driver, else by the system and by the group of processes."""
    if device == "cuda":
        import torch

        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    found = [*_available(), *_group()]
    return min(found, default=1 << 62)


def check(bytes_: int, device: str) -> None:
    """Raise NoRoomError if tensors of so many bytes, twice, are more than there is room for.

    >>> check(1 << 50, "cpu")
    NoRoomError: does not fit in memory: it needs at least 2,252 TB, 8.1 GB are free
    """
    devices = {device, "cpu"}  # cases are made on the CPU
    for each in sorted(devices):
        free = free_bytes(each)
        if bytes_ * COPIES > free:
            where = " on the GPU" if each == "cuda" else ""
            raise NoRoomError(
                f"does not fit in memory: it needs at least {spelled(bytes_ * COPIES)}, {spelled(free)} are free{where}"
            )


def spelled(count: float) -> str:
    """`8.1 GB`, `2,252 TB`."""
    for unit, scale in (("TB", 1e12), ("GB", GB), ("MB", 1e6)):
        if count >= scale or unit == "MB":
            value = count / scale
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return ""


def _available() -> Iterable[int]:
    info = Path("/proc/meminfo")
    try:
        lines = info.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("MemAvailable"):
            yield int(line.split()[1]) * 1024


def _group() -> Iterable[int]:
    """What the control group, a container's say, still allows."""
    for folder, most, now in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit, used = ((Path(folder) / n).read_text(encoding="utf-8").strip() for n in (most, now))
        except OSError:
            continue
        if limit.isdigit() and used.isdigit():
            yield max(int(limit) - int(used), 0) + _reclaimable(Path(folder))


def _reclaimable(folder: Path) -> int:
    """Pages of files that the group is charged for, and that go when memory is wanted."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))
