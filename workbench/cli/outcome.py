"""What a command has to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..reports.report import Report


@dataclass
class Outcome:
    """`text` is for people, `data` for `--json`; `ok` decides between the exit codes 0 and 1.

    `errors` are of the ops for which nothing came of it, by name; `stopped` says that an interrupt ended it early.
    """

    ok: bool
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    stopped: bool = False


def of_reports(reports: Sequence[Report]) -> Outcome:
    """All is well if each report is."""
    text = "\n\n".join(map(str, reports))
    return Outcome(all(r.ok for r in reports), text, {"reports": [r.to_dict() for r in reports]})
