"""Races: is a failing input, run again, wrong in another way, or right? Then no index and no formula is to blame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...reports.report import Row
from ...source import code
from ..cure_table import RACE, THREADS
from . import sweep
from .finding import Finding, Tries, vary
from .rows import Tried

AGAIN = 8
SAID = "a race: run again it gives another result"
_THREADS = re.compile(
    r"\bomp\s+(?:target\s+)?(?:teams\s+distribute\s+)?(?:parallel|task|sections)\b|\batomic|\bstd::(?:jthread|thread|async|execution)\b|"
    r"\bparallel_for\b|\bpthread_create\b|\btbb::"
)
_RUN_AGAIN = {"sizes", "layouts", "values", "dtypes", "scalars", "determinism"}  # whose failing inputs are
_VALUES = re.compile(r"differ|not close|mismatch|nondetermin", re.IGNORECASE)


def parallel(tries: Tries) -> bool:
    """Do several threads share the work of this kernel, as far as its text says?

    >>> parallel(tries)     # of a cell with `#pragma omp parallel for`
    True
    """
    source: Any = getattr(getattr(tries, "kernel", None), "source", None)
    if source is None or tries.sequential or tries.unrunnable:
        return False
    return tries.device != "cpu" or bool(_THREADS.search(code(source.text, source.language)))


def of(tried: Sequence[Tried], tries: Tries, schema: Any) -> Tried | None:
    """A failing input that gives other results when it is run again; the one with most work for threads is tried."""
    wrong = [t for t in tried if t.finding.status in {"mismatch", "unwritten"}]
    if not wrong or not parallel(tries):
        return None
    t = max(wrong, key=lambda t: sweep.elements(t.variant, schema))
    (again,) = tries.submit([t.finding.case], repeats=AGAIN).result()
    return t if again.varies or vary([t.finding, again]) else None


def told(row: Row) -> Row:
    """The row of a sweep in which such an input was found."""
    return replace(row, detail=f"{SAID}: {row.detail}".replace("smallest found", "one of them"), cure=RACE)


def is_race(f: Finding) -> bool:
    """Did repetitions of one input come out differently?"""
    return f.varies or f.differing > 0


def reworded(rows: Sequence[Row], *, found: bool) -> list[Row]:
    """The rows of a kernel with threads: what a race explains is not put down to other reasons.

    `found` says that a race was seen; else rows whose inputs were run once say that it may be one.
    """
    return [_reworded(r, found) for r in rows]


def _reworded(row: Row, found: bool) -> Row:
    if row.status != "fail" or row.cure.startswith(RACE) or not _VALUES.search(row.detail):
        return row
    if row.check in _RUN_AGAIN and not found:
        return row
    sure = found and row.check not in _RUN_AGAIN  # what failed alike each time may have another reason, too
    return replace(row, cure=RACE if sure else f"{row.cure} {THREADS}".strip())


__all__ = ["is_race", "of", "parallel", "reworded", "told"]
