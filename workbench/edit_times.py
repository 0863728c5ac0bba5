"""How long an edit takes in each tier on this machine: the last ones, kept in a small file of the cache folder."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping
from contextlib import suppress

from . import kept
from .errors import ToolchainError

FILE = "edit_times.json"
KEPT, MACHINES = 9, 8


def remember(tier: str, seconds: float) -> None:
    """One edit that compiled: from running the cell to its end. A folder that cannot be written to is no error.

    >>> remember("host", 0.71)
    """
    times = _read()
    mine = times.pop(_machine(), {})
    mine[tier] = [*mine.get(tier, [])[1 - KEPT :], round(seconds, 4)]
    with suppress(OSError, ToolchainError):
        kept.write(FILE, dict(list(times.items())[1 - MACHINES :]) | {_machine(): mine})


def typical() -> Mapping[str, float]:
    """The median seconds of an edit by tier, of those that were measured here: `{"raw": 0.06, "full": 2.6}`."""
    return {tier: statistics.median(seconds) for tier, seconds in _read().get(_machine(), {}).items()}


def _machine() -> str:
    """A cache folder may be shared: a slower machine's seconds say nothing here."""
    return f"{platform.node()} {os.cpu_count()}"


def _read() -> dict[str, dict[str, list[float]]]:
    """What the file says; anything that is not what `remember` writes counts for nothing."""
    try:
        return {
            str(machine): {str(tier): [float(s) for s in seconds][-KEPT:] for tier, seconds in times.items() if seconds}
            for machine, times in kept.read(FILE).items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
