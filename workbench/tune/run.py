"""One tuning from beginning to end: case by case within the budget; then the best ones are kept in the op."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from ..reports.report import Progress
from ..reports.tuning import NOT_REACHED, Tuning, TuningRow, spelled
from .one import One
from .space import Candidate
from .task import Task, Tell


@dataclass
class Run:
    """The state of one tuning; what it has is there also after an interrupt."""

    report: Tuning
    tasks: Sequence[Task]
    budget_s: float
    executor: Executor | None = None
    tell: Tell = lambda told: None
    now: Callable[[], float] = time.perf_counter
    rows: dict[tuple[str, Candidate], TuningRow] = field(default_factory=dict)
    trials: set[tuple[str, int]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    stopped: str = ""
    started: float = 0.0
    until: float = math.inf

    def __call__(self) -> Tuning:
        """All tasks, one after the other, each with its share of what is left of the budget."""
        self.started = self.now()
        try:
            for number, task in enumerate(self.tasks):
                left = self.started + self.budget_s - self.now()
                self.until = self.now() + max(left, 0.0) / (len(self.tasks) - number)
                One(self, task).run()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        report = self._report()
        return self._frozen(report)

    def _report(self) -> Tuning:
        rows = tuple(r for task in self.tasks for (label, _), r in self.rows.items() if label == task.label)
        if not self.stopped and any(r.status == NOT_REACHED for r in rows):
            self.stopped = self.ended
        return replace(
            self.report, rows=rows, trials=len(self.trials), seconds=self.now() - self.started,
            budget_s=self.budget_s, stopped=self.stopped, notes=(*self.report.notes, *dict.fromkeys(self.notes)),
        )  # fmt: skip

    def _frozen(self, report: Tuning) -> Tuning:
        """The winner of each case goes into the op, and into the line to paste that of all of them."""
        frozen = False
        for task in self.tasks:
            for (label, kernel), row in report.winners.items():
                if label == task.label and not task.unrunnable:
                    one = next(c for c in task.space.candidates if c.kernel == kernel and c.config == row.config)
                    task.space.freeze(one)
                    frozen = True
        best = report.best
        if best is None:
            return report
        winners = {k: r.config for (case, k), r in report.winners.items() if case == best.case}
        winners[best.kernel] = best.config
        return replace(report, line=self.tasks[0].space.line(winners), frozen=frozen)

    @property
    def ended(self) -> str:
        return f"the budget of {self.budget_s:g} s ended"

    def step(self, task: Task, what: str, done: int, of: int) -> None:
        best = min((r for (case, _), r in self.rows.items() if r.ok and case == task.label), default=None,
                   key=lambda r: r.time_us)  # fmt: skip
        said = f"{what} on {task.label}" + (f", best {best.time_us:.4g} us: {spelled(best.config)}" if best else "")
        self.tell(Progress(self.report.op, said, done, max(of, 1), self.now() - self.started))
