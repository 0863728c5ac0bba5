"""What tuning has found, kept on disk: for each source, device and case a file of configurations with their results.

    tuning/ab/abcd....json   {"sha256": of the rest, "about": ..., "rows": {configuration: result}}

A file counts only if its digest is right: one that was cut short or edited is as good as none, and is told. It is
written aside and renamed, under a lock, and what another process has added meanwhile is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import kept, settings
from ..errors import ToolchainError

MOST_ROWS = 4096  # of one file; the oldest go first


@dataclass(frozen=True)
class Shelf:
    """The results of one source on one device for one case.

    >>> shelf = Shelf(key)
    >>> shelf.add({"BLOCK=128": {"status": "timed", "time_us": 41.0}})
    >>> shelf.read()[0]["BLOCK=128"]["time_us"]
    41.0
    """

    key: str

    @property
    def name(self) -> str:
        return f"tuning/{self.key[:2]}/{self.key}.json"

    @property
    def path(self) -> Path:
        return settings.cache_dir() / self.name

    def read(self) -> tuple[dict[str, dict[str, Any]], str]:
        """The rows, by configuration, and what is to be said: "" where all is well. Never raises."""
        try:
            if not settings.owned(settings.cache_dir()):
                return {}, ""
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}, ""
        except (OSError, ToolchainError, UnicodeDecodeError) as error:
            return {}, f"what was tuned before cannot be read ({_brief(error)}): it is tuned anew"
        try:
            found = json.loads(text)
            rows = found["rows"]
            if found["sha256"] != _digest(rows):
                raise ValueError("its bytes have changed")
            if not all(isinstance(r, dict) and isinstance(r.get("status"), str) for r in rows.values()):
                raise ValueError("it holds something else")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            return {}, f"what was tuned before is corrupt ({_brief(error)}; {self.path}): it is tuned anew"
        return rows, ""

    def add(self, rows: Mapping[str, Mapping[str, Any]], about: str = "") -> str:
        """Keep these rows beside those that are there; what is to be said where they cannot be kept. Never raises."""
        if not rows:
            return ""
        import filelock

        try:
            settings.private(settings.cache_dir())
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with filelock.FileLock(f"{self.path}.lock", timeout=10):
                merged = {**self.read()[0], **{k: dict(v) for k, v in rows.items()}}
                for old in list(merged)[: max(0, len(merged) - MOST_ROWS)]:
                    del merged[old]
                kept.write(self.name, {"sha256": _digest(merged), "about": about, "rows": merged})
        except (OSError, ToolchainError, TimeoutError) as error:
            return f"what was found cannot be kept for later processes ({_brief(error)})"
        return ""


def _digest(rows: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _brief(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


__all__ = ["Shelf"]
