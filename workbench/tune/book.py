"""What a tuning has found so far, case by case, and what it tells on the way. An interrupt leaves all of it there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..reports.report import Progress
from ..reports.tuning import TuningRow, spelled
from .space import Candidate
from .task import Tell


@dataclass
class Book:
    """Rows by case and candidate, the trials that these cost, notes; why it ended early, "" where it did not."""

    op: str
    slot: str
    budget_s: float
    tell: Tell = lambda told: None
    now: Callable[[], float] = time.perf_counter
    rows: dict[tuple[str, Candidate], TuningRow] = field(default_factory=dict)
    trials: set[tuple[str, Candidate]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    stopped: str = ""
    started: float = 0.0

    def of(self, case: str) -> dict[Candidate, TuningRow]:
        """The rows of one case."""
        return {one: row for (label, one), row in self.rows.items() if label == case}

    def note(self, said: str) -> None:
        """Something to be told, if it is anything."""
        self.notes += [said] if said else []

    def ended(self) -> None:
        """The budget is spent."""
        self.stopped = self.stopped or f"the budget of {self.budget_s:g} s ended"

    def step(self, case: str, what: str, done: int, of: int) -> None:
        """Tell how far it is, with the best so far."""
        best = min((r for r in self.of(case).values() if r.ok), default=None, key=lambda r: r.time_us)
        said = f"{what} on {case}" + (f", best {best.time_us:.4g} us: {spelled(best.config)}" if best else "")
        self.tell(Progress(self.op, said, done, max(of, 1), self.now() - self.started))


__all__ = ["Book"]
