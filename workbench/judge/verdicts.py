"""Trials that were passed, remembered: the same binary on the same inputs against the same answers needs no other.

The key holds everything that the trial depends on: the text, the builds, the bytes of the inputs and of the
reference's answers in both precisions. So another reference or other cases are other keys. Only passed trials are
kept, in this process and in the store, where a later process finds them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from ..build import cache, store
from ..build.result import Made
from ..build.store import Unwritable
from ..reports.report import Outcome, Trial

RULES = "3"  # of the trial and of agreement; another number forgets all verdicts
LIMIT_BYTES = 30_000_000

_passed: dict[str, Trial] = {}


class Digested(Protocol):
    """What has a digest of all that decides a trial."""

    @property
    def digest(self) -> str: ...


def key(kernels: Sequence[Digested], evidence: Sequence[Digested]) -> str:
    """The key of one trial: of these kernels, as built, on these cases.

    Each kernel gives its `digest` (text and builds), each piece of evidence its own (inputs and answers).
    """
    return store.key({"rules": RULES, "kernels": [k.digest for k in kernels], "evidence": [e.digest for e in evidence]})


def recall(found: str) -> Trial | None:
    """The passed trial of that key, from this process or the store."""
    if found in _passed:
        return _passed[found]
    try:
        build = _shelf().find(found)
        text = Path(build.path).read_text(encoding="utf-8") if build is not None else ""
        plain = json.loads(text) if text else None
        if plain is None:
            return None
        trial = Trial(tuple(Outcome(**o) for o in plain["outcomes"]), notes=tuple(plain["notes"]))
    except (OSError, Unwritable, ValueError, TypeError, KeyError):
        return None  # unreadable is unknown: it is tried again
    if not trial.ok:
        return None
    _passed[found] = trial
    return trial


def remember(found: str, trial: Trial) -> None:
    """Keep a passed trial; one that printed or failed is run again each time."""
    if not trial.ok or trial.printed or not trial.outcomes:
        return
    _passed[found] = trial

    def write(folder: Path) -> Made:
        plain = {"outcomes": [asdict(o) for o in trial.outcomes], "notes": list(trial.notes)}
        (folder / "trial.json").write_text(json.dumps(plain), encoding="utf-8")
        return Made("trial.json", "verdict", trial.seconds)

    try:
        _shelf().build(found, write)
    except (OSError, Unwritable):
        return  # remembered in this process alone


def _shelf() -> store.Store:
    return cache.store("verdicts", limit_bytes=LIMIT_BYTES, verify=True)
