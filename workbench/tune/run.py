"""One tuning from beginning to end: case by case within the budget; then the best ones are kept in the op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from ..reports.tuning import INTERRUPTED, NOT_REACHED, Tuning
from .book import Book
from .one import One
from .task import Task, Tell


def run(
    report: Tuning,
    tasks: Sequence[Task],
    budget_s: float = math.inf,
    executor: Executor | None = None,
    tell: Tell = lambda told: None,
) -> Tuning:
    """All tasks, one after the other, each with its share of what is left of the budget: `report` with what was found.

    An interrupt ends it; what was found until then is there, and the best of it is kept in the op.
    """
    book = Book(report.op, report.slot, budget_s, tell)
    book.started = book.now()
    try:
        for number, task in enumerate(tasks):
            left = book.started + budget_s - book.now()
            One(book, task, book.now() + max(left, 0.0) / (len(tasks) - number), executor).run()
    except KeyboardInterrupt:
        book.stopped = INTERRUPTED
    return _frozen(_filled(report, tasks, book), tasks)


def _filled(report: Tuning, tasks: Sequence[Task], book: Book) -> Tuning:
    rows = tuple(row for task in tasks for row in book.of(task.label).values())
    if any(r.status == NOT_REACHED for r in rows):
        why = "an interrupt came before it" if book.stopped == INTERRUPTED else "the budget ended before it"
        rows = tuple(replace(r, reason=r.reason or why) if r.status == NOT_REACHED else r for r in rows)
        book.ended()
    return replace(
        report, rows=rows, trials=len(book.trials), seconds=book.now() - book.started, budget_s=book.budget_s,
        ended=book.stopped, notes=(*report.notes, *dict.fromkeys(book.notes)),
    )  # fmt: skip


def _frozen(report: Tuning, tasks: Sequence[Task]) -> Tuning:
    """The winner of each case goes into the op, and into the line to paste that of all of them."""
    frozen = False
    for task in tasks:
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
    return replace(report, line=tasks[0].space.line(winners), frozen=frozen)


__all__ = ["run"]
