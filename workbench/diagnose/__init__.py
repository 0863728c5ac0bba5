"""`wb.doctor()`: is everything here that ops are built and run with, and does it work? A fix for each finding.

Each look tries the thing itself: it compiles, runs a worker, imports. What is only needed for some cells, and is not
here, is no failure: it is told as not there, with what to install.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..errors import ToolchainError, WorkbenchError
from ..reports.report import Check, Row
from . import around, device, host
from .trying import Found

LOOKS: dict[str, Callable[[], Found]] = {
    "python": host.python, "torch": host.torch_, "reader": host.reader, "compiler": host.compiler,
    "openmp": host.openmp, "headers": host.headers, "ninja": host.ninja, "driver": device.driver,
    "nvrtc": device.nvrtc_, "nvcc": device.nvcc_, "triton": device.triton_, "cache": around.cache_,
    "worker": around.worker_, "widgets": around.widgets, "counters": device.counters,
}  # fmt: skip


def doctor(only: str | Sequence[str] = ()) -> Check:
    """Look at Python, torch, compilers, headers, ninja, CUDA, driver, Triton, cache, worker and widgets.

    >>> wb.doctor().ok
    True
    >>> print(wb.doctor())                       # a row for each, with a fix where one is needed
    >>> [row.check for row in wb.doctor(["compiler", "cache"]).rows]         # these alone
    ['compiler', 'cache']

    `only` names what is looked at, all of it without. `.ok` is False where something that every op needs does not work.
    WorkbenchError for a name that is not looked at.
    """
    only = [only] if isinstance(only, str) else list(only)
    unknown = [n for n in only if n not in LOOKS]
    if unknown:
        raise WorkbenchError(f"doctor: {unknown[0]!r} is not looked at; the names are {', '.join(LOOKS)}")
    start = time.perf_counter()
    rows = tuple(row(name) for name in LOOKS if not only or name in only)
    return Check("this machine", rows, "doctor", time.perf_counter() - start)


def row(name: str) -> Row:
    """One look; what it raises is the finding."""
    try:
        status, detail, cure = LOOKS[name]()
    except ToolchainError as error:
        said, _, cure = error.message.partition(". ")
        status, detail = "fail", said
    except Exception as error:
        status, detail, cure = "fail", f"{type(error).__name__}: {error}", ""
    return Row(name, "", status, detail, f"{cure.rstrip('.')}." if cure else "")
