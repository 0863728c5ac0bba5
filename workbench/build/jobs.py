"""How many compilers may run side by side here: as many as the processors, the control group and the memory allow."""

from __future__ import annotations

import os

from .. import settings

BYTES_EACH = 1_400_000_000  # one run of gcc on torch's headers


def most(wanted: int) -> int:
    """How many of `wanted` compilers to start at once; at least 1. MAX_JOBS, which torch knows too, has the last word.

    >>> most(4)                              # two processors, 20 GB free
    2
    """
    named = settings.max_jobs()
    if named:
        return min(wanted, named)
    allowed = [_affinity(), _quota(), available_bytes() // BYTES_EACH]
    return max(1, min(wanted, *allowed))


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _quota() -> int:
    """The whole processors that the control group grants: "150000 100000" are one and a half, so 1."""
    share, period = (_words("/sys/fs/cgroup/cpu.max") or ["max", "100000"])[:2]
    if share == "max":  # version 1 says it in two files, and -1 for no limit
        share = (_words("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or ["-1"])[0]
        period = (_words("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or ["100000"])[0]
    try:
        return max(1, int(share) // int(period)) if int(share) > 0 else _affinity()
    except (ValueError, ZeroDivisionError):
        return _affinity()


def available_bytes() -> int:
    """Memory that new processes may take: of the machine, or of the control group if that is less."""
    free = next((int(w) << 10 for w in _after("/proc/meminfo", "MemAvailable:")), BYTES_EACH * _affinity())
    for most_, now in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, used = _words(f"/sys/fs/cgroup/{most_}"), _words(f"/sys/fs/cgroup/{now}")
        if limit and used and limit[0].isdigit() and used[0].isdigit():
            cached = next((int(w) for w in _after("/sys/fs/cgroup/memory.stat", "inactive_file")), 0)
            free = min(free, max(0, int(limit[0]) - int(used[0]) + cached))
    return free


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().split()
    except OSError:
        return []


def _after(path: str, word: str) -> list[str]:
    words = _words(path)
    return words[words.index(word) + 1 :][:1] if word in words else []
