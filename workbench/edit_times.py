"""How long an edit takes in each tier on this machine: the last ones, kept in a small file of the cache folder."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
from collections.abc import Mapping

from . import settings
from .errors import ToolchainError

FILE = "edit_times.json"
KEPT, MACHINES = 9, 8


def remember(tier: str, seconds: float) -> None:
    """One edit that compiled: from running the cell to its end. A folder that cannot be written to is no error.

    >>> remember("host", 0.71)
    """
    kept = _read()
    mine = kept.pop(_machine(), {})
    mine[tier] = [*mine.get(tier, [])[1 - KEPT :], round(seconds, 4)]
    kept = dict(list(kept.items())[1 - MACHINES :]) | {_machine(): mine}
    try:
        folder = settings.private(settings.cache_dir())
        handle, name = tempfile.mkstemp(dir=folder, prefix="edit-times-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        os.replace(name, folder / FILE)
    except (OSError, ToolchainError):
        pass


def typical() -> Mapping[str, float]:
    """The median seconds of an edit by tier, of those that were measured here: `{"raw": 0.06, "full": 2.6}`."""
    return {tier: statistics.median(seconds) for tier, seconds in _read().get(_machine(), {}).items()}


def _machine() -> str:
    """A cache folder may be shared: a slower machine's seconds say nothing here."""
    return f"{platform.node()} {os.cpu_count()}"


def _read() -> dict[str, dict[str, list[float]]]:
    """What the file says; anything that is not what `remember` writes counts for nothing."""
    try:
        if not settings.owned(settings.cache_dir()):
            return {}
        found = json.loads((settings.cache_dir() / FILE).read_text("utf-8"))
        return {
            str(machine): {str(tier): [float(s) for s in seconds][-KEPT:] for tier, seconds in times.items() if seconds}
            for machine, times in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, ToolchainError):
        return {}
