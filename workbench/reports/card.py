"""The card of an op as plain data: what runs where, its last reports, its code, and the ledger of its versions.

How it looks is `show`'s business; `describe` gathers it from the op.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .measurement import Bench
from .profiling import Profile
from .report import Check, Report
from .tuning import Tuning

TABS = ("Check", "Bench", "Profile", "Tune", "Code", "History")


@dataclass(frozen=True)
class SlotRow:
    """One slot on one device, as the card shows it above its tabs."""

    slot: str  # "forward cpu", "backward"
    runs: str  # "v2", or "reference", "reference's vjp"
    how: str = ""  # "raw C++"
    agrees: str = ""  # "18 of 18"; "" when nothing was compared
    ok: bool = True
    time_us: float = 0.0
    share: float = 0.0  # of the ceiling, 0..1; 0.0 when not measured
    resources: str = ""
    cost: str = ""  # why this tier, and what a faster one would need
    unrun: bool = False  # `agrees` says that this machine cannot run it
    case: str = ""  # what was timed
    ceiling: str = ""  # what `share` is a share of: "copy bandwidth"
    rough: bool = False  # the time is that of the cell's line, not of a bench


@dataclass(frozen=True)
class HistoryRow:
    """One version in the ledger.

    `verdict` is a bench's word on it against version `against` ("FASTER", "SLOWER", "SAME", "UNCLEAR"), `ratio` that
    version's time over this one's. `text` is its source, `before` that of the version before it in the same slot and
    language: their difference is shown, neither is kept in JSON.
    """

    version: int
    slot: str
    how: str
    status: str  # "installed", "former", "refused", "other schema": the op had another one then
    seconds: float
    agrees: str = ""
    title: str = ""
    detail: str = ""
    resources: str = ""
    time_us: float = 0.0
    case: str = ""
    rough: bool = False
    verdict: str = ""
    ratio: float = 0.0
    against: int = 0
    text: str = field(default="", repr=False)
    before: str = field(default="", repr=False)


@dataclass(frozen=True)
class Card(Report):
    """All that an op has to show for itself. `bench`, `profile` and `tuning` are the last reports of these verbs."""

    name: str
    signature: str
    slots: tuple[SlotRow, ...]
    history: tuple[HistoryRow, ...] = ()
    check: Check | None = None
    code: tuple[tuple[str, str, str], ...] = ()  # (slot, language, text) of what runs now
    doc: str = ""
    notes: tuple[str, ...] = ()
    opened: str = "Check"  # the tab that last changed or failed
    bench: Bench | None = None
    profile: Profile | None = None
    tuning: Tuning | None = None

    @property
    def ok(self) -> bool:
        """Does what runs in every slot agree?"""
        return all(s.ok for s in self.slots)

    @property
    def rows(self) -> tuple[SlotRow, ...]:
        """One a slot and device."""
        return self.slots

    def __str__(self) -> str:
        from ..show import text

        return text.card(self)


__all__ = ["TABS", "Card", "HistoryRow", "SlotRow"]
