"""How many compilers may run side by side here: as many as the processors, the control groups and the memory allow."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .. import settings

BYTES_EACH = 1_400_000_000  # one run of gcc on torch's headers
PROCESSES_EACH = 8  # a compiler's driver, its passes and the shell that ninja starts it in, with room to spare
GROUPS = "/sys/fs/cgroup"


def most(wanted: int) -> int:
    """How many of `wanted` compilers to start at once; at least 1. MAX_JOBS, which torch knows too, has the last word.

    >>> most(4)                              # two processors, 20 GB free
    2
    """
    named = settings.max_jobs()
    if named:
        return min(wanted, named)
    allowed = [_affinity(), _quota(), available_bytes() // BYTES_EACH, _processes() // PROCESSES_EACH]
    return max(1, min(wanted, *allowed))


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _folders(controller: str) -> Iterator[str]:
    """The control groups that this process is in and those around it, in the first and second version's layout.

    In a container the innermost one is the root of what is seen; on a shared machine it may lie deep below.
    """
    rows = [row.split(":", 2) for row in _text("/proc/self/cgroup").splitlines() if row.count(":") >= 2]
    paths = {c: path for _, names, path in rows for c in names.split(",")}
    for root, path in ((GROUPS, paths.get("", "/")), (f"{GROUPS}/{controller}", paths.get(controller, "/"))):
        parts = [p for p in path.split("/") if p and p != ".."]
        yield from ("/".join([root, *parts[:n]]) for n in range(len(parts), -1, -1))


def _quota() -> int:
    """The whole processors that the control groups grant: "150000 100000" are one and a half, so 1."""
    granted = [_affinity()]
    for folder in _folders("cpu"):
        share, period = (_words(f"{folder}/cpu.max") or ["max", "100000"])[:2]
        if share == "max":  # version 1 says it in two files, and -1 for no limit
            share = (_words(f"{folder}/cpu.cfs_quota_us") or ["-1"])[0]
            period = (_words(f"{folder}/cpu.cfs_period_us") or ["100000"])[0]
        try:
            granted += [max(1, int(share) // int(period))] if int(share) > 0 else []
        except (ValueError, ZeroDivisionError):
            continue
    return min(granted)


def _processes() -> int:
    """How many processes more the control groups and `ulimit -u` allow."""
    free = [1 << 20]
    for folder in _folders("pids"):
        limit, now = _number(f"{folder}/pids.max"), _number(f"{folder}/pids.current")
        free += [limit - now] if limit >= 0 and now >= 0 else []
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        if limit >= 0 and os.geteuid() != 0:  # root is not held to it
            free.append(limit - _own_processes())
    except (ImportError, OSError, ValueError, AttributeError):
        pass
    return max(0, min(free))


def _own_processes() -> int:
    """The threads of this user, which is what `ulimit -u` counts."""
    total = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}").st_uid == os.geteuid():
                total += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:
            continue
    return total


def available_bytes() -> int:
    """Memory that new processes may take: of the machine, or of a control group if that is less."""
    free = next((int(w) << 10 for w in _after("/proc/meminfo", "MemAvailable:")), BYTES_EACH * _affinity())
    for folder in _folders("memory"):
        cached = next((int(w) for w in _after(f"{folder}/memory.stat", "inactive_file")), 0)
        for most_, now in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, used = _number(f"{folder}/{most_}"), _number(f"{folder}/{now}")
            if limit >= 0 and used >= 0:
                free = min(free, max(0, limit - used + cached))
    return free


def _number(path: str) -> int:
    """The one number of a file; -1 for none, and for "max"."""
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else -1


def _words(path: str) -> list[str]:
    return _text(path).split()


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _after(path: str, word: str) -> list[str]:
    words = _words(path)
    return words[words.index(word) + 1 :][:1] if word in words else []
