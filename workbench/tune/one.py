"""The tuning of one case: what is known is looked up, the rest built, tried in the worker, timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from ..measure.clock import Call, Clock
from ..reports.tuning import NOT_REACHED, NOT_RUN, PRUNED, TIMED, TuningRow
from .book import Book
from .search import Found, search
from .space import Candidate, Failed, Space
from .task import Task

BATCH = 16  # configurations of one job of the trial
BUILD_SHARE = 0.8  # of the budget; timing gets the rest, whatever was built
LEAST, LEAST_S = 3, 0.5  # samples of one timing, and how long these may take
FINALISTS = 4  # of those that were measured elsewhere, for a look here
KEPT = {"build", "resources", "mismatch", "crash", "hang", "overrun", "mutation", "error", PRUNED, TIMED}
FIELDS: dict[str, type | tuple[type, ...]] = {  # of a row, as they are kept
    "status": str, "time_us": (int, float), "reason": str, "registers": int, "shared": int, "spills": int,
    "final": bool, "place": str,
}  # fmt: skip


Built = tuple[Candidate, Failed | None]


class One:
    """The tuning of one case, until that time on the book's clock; all that it finds goes into the book."""

    def __init__(self, book: Book, task: Task, until: float, executor: Executor | None = None) -> None:
        self.book, self.task, self.space = book, task, task.space
        self.until, self.executor = until, executor
        self.began = book.now()

    def put(self, one: Candidate, status: str, **known: Any) -> None:
        """The row of a candidate as it is known now."""
        taken = self.space.resources(one) if status not in (NOT_REACHED, PRUNED) or "registers" in known else ()
        former = self.book.rows.get((self.task.label, one))
        kernels = [c for c in self.space.candidates if c.kernel == one.kernel]
        made = TuningRow(
            one.config, status, case=self.task.label, kernel=one.kernel, is_default=one is kernels[0],
            registers=max((r.registers for r in taken), default=former.registers if former else 0),
            shared=max((r.shared for r in taken), default=former.shared if former else 0),
            spills=max((r.spills for r in taken), default=former.spills if former else 0),
        )  # fmt: skip
        self.book.rows[self.task.label, one] = replace(made, **{k: v for k, v in known.items() if k != "of"})

    def left(self, share: float = 1.0) -> float:
        """Seconds until that share of the case's time is spent."""
        return self.began + (self.until - self.began) * share - self.book.now()

    def run(self) -> None:
        self.book.notes += self.space.notes
        known, said = self.task.shelf.read()
        self.book.note(said)
        for one in self.space.candidates:
            self.put(one, NOT_REACHED)
        todo = [c for c in self.space.candidates if not self._recall(c, known)]
        try:
            ready = self._ready(todo)
            if self.executor is not None and self.task.ship is not None:
                ready = self._elsewhere(ready)
            self._here(ready)
        finally:
            self._keep(known)

    def _recall(self, one: Candidate, known: Mapping[str, Mapping[str, Any]]) -> bool:
        row = known.get(one.name, {})
        fields = {k: row[k] for k, kind in FIELDS.items() if isinstance(row.get(k), kind)}
        if fields.keys() != FIELDS.keys() or fields["status"] not in KEPT or not fields["time_us"] >= 0:
            return False
        self.put(one, **fields, remembered=True)
        return True

    def _ready(self, todo: Sequence[Candidate]) -> list[Candidate]:
        """Without those that need not be built."""
        ready = []
        for one in todo:
            reason = self.space.ruled_out(one)
            if reason:
                self.put(one, PRUNED, reason=reason)
            else:
                ready.append(one)
        return ready

    def _keep(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """What is now known better than it was."""
        rows = {c: r for c, r in self.book.of(self.task.label).items() if r.status in KEPT}
        plain = {c.name: {k: getattr(r, k) for k in FIELDS} for c, r in rows.items()}
        plain = {name: row for name, row in plain.items() if row != known.get(name)}
        self.book.note(self.task.shelf.add(plain, f"{self.book.op} {self.book.slot}, {self.task.label}"))

    # ------------------------------------------------------------ elsewhere

    def _elsewhere(self, ready: Sequence[Candidate]) -> list[Candidate]:
        """Have them measured by the executor; those that are worth a look here too, and those that were lost."""
        from . import elsewhere

        assert self.executor is not None
        assert self.task.ship is not None
        lost: list[Candidate] = []
        for done, (some, answer) in enumerate(
            elsewhere.spread(self.executor, self.task.ship, ready, left_s=self.left, notes=self.book.notes)
        ):
            self.book.step(self.task.label, "elsewhere", done, len(ready))
            rows: list[Any] = answer if answer is not None else [None for _ in some]
            for one, row in zip(some, rows, strict=True):
                if row is None:
                    lost.append(one)
                    self.put(one, "lost", reason="the worker that had it is gone")
                    continue
                self.book.trials.add((self.task.label, one))
                self.put(one, **row)
        known = self.book.of(self.task.label)
        timed = sorted((c for c in ready if known[c].ok), key=lambda c: known[c].time_us)
        if self.task.unrunnable:
            return []
        return [*timed[:FINALISTS], *lost]

    # ------------------------------------------------------------ here

    def _here(self, ready: Sequence[Candidate]) -> None:
        built = self._built(ready)
        if self.task.unrunnable or not built:
            return
        call = self.task.call()
        clock, warmed = self.task.clock(), set()

        def time_one(one: Candidate, budget_s: float) -> float | None:
            try:
                self.space.enter(one)
                turn = replace(call, name=one.name)
                if one not in warmed:
                    clock.warm(turn)
                    warmed.add(one)
                return _seconds(clock, turn, budget_s, self.book.now)
            except Exception as error:  # a kernel that passed its trial and raises now; the others go on
                self.put(one, "error", reason=_brief(error))
                return None

        try:
            for kernel in dict.fromkeys(c.kernel for c in built):
                mine = [c for c in built if c.kernel == kernel]
                self._timed([*self._champion(kernel, mine), *mine], time_one)
        finally:
            self.space.leave()

    def _champion(self, kernel: str, mine: Sequence[Candidate]) -> list[Candidate]:
        """The remembered best is timed beside new ones: their times are of another day."""
        known = [c for c in self.space.candidates if c.kernel == kernel and c not in mine]
        rows = [(r, c) for c in known if (r := self.book.rows[self.task.label, c]).ok]
        return [min(rows, key=lambda rc: (not rc[0].final, rc[0].time_us))[1]] if rows else []

    def _timed(self, mine: Sequence[Candidate], time_one: Callable[[Candidate, float], float | None]) -> None:
        found: Found[Candidate] = Found()

        def told(one: Candidate, seconds: float) -> None:
            self.put(one, TIMED, time_us=seconds * 1e6)
            self.book.step(self.task.label, "timing", len(found.seconds), len(mine))

        try:
            search(mine, time_one, left_s=self.left, told=told, found=found)
        finally:
            for one, seconds in found.seconds.items():
                if self.book.rows[self.task.label, one].status == TIMED:
                    self.put(one, TIMED, time_us=seconds * 1e6, final=one in found.finalists)
            if found.finalists:  # the former ones were not timed now
                for (label, one), row in list(self.book.rows.items()):
                    same = label == self.task.label and one.kernel == mine[0].kernel
                    if same and row.final and one not in found.seconds:
                        self.book.rows[label, one] = replace(row, final=False)
        if not found.complete and self.left() <= 0:
            self.book.ended()

    def _built(self, ready: Sequence[Candidate]) -> list[Candidate]:
        """Those that compile, and agree with the reference where they can run."""
        good: list[Candidate] = []
        waiting: list[Candidate] = []
        for done, (one, failed) in enumerate(_first_first(ready, self.space.build(ready)), 1):
            self.book.trials.add((self.task.label, one))
            self.book.step(self.task.label, "building", done, len(ready))
            if failed is not None:
                self.put(one, failed.status, reason=failed.reason, registers=_registers(self.space, one))
            elif self.task.unrunnable:
                self.put(one, NOT_RUN, reason=self.task.unrunnable)
            elif one is ready[0]:
                self._tried([one], good)
            else:
                waiting.append(one)
            if len(waiting) >= (BATCH if good else 1):
                self._tried(waiting, good)
                waiting = []
            if good and self.left(BUILD_SHARE) <= 0:
                break
        self._tried(waiting, good)
        return good

    def _tried(self, some: Sequence[Candidate], good: list[Candidate]) -> None:
        """Those that agree join the good ones; while there are none, the budget is not asked."""
        said = iter(self.task.check(some, lambda: self.left() if good else math.inf))
        for one in some:
            if good and self.left() <= 0:
                break
            status, reason = next(said)
            if status == "agree":
                good.append(one)
            else:
                self.put(one, status, reason=reason)


def _first_first(ready: Sequence[Candidate], built: Iterable[Built]) -> Iterator[Built]:
    """As they come, but none before the first, which is the installed one: the shortest budget has something."""
    early: list[Built] = []
    begun = False
    for found in built:
        begun = begun or found[0] is ready[0]
        early.append(found)
        if begun:
            yield from sorted(early, key=lambda b: b[0] is not ready[0])
            early = []


def _seconds(clock: Clock, call: Call, budget_s: float, now: Callable[[], float]) -> float:
    """The least of as many samples as fit, and at least three of what is short: other programs only add to it."""
    started = now()
    taken: list[float] = []
    while not taken or now() - started < budget_s or (len(taken) < LEAST and now() - started < LEAST_S):
        missing = max(LEAST - len(taken), math.ceil((budget_s - (now() - started)) / min(taken)) if taken else 1)
        taken += [r[0] for r in clock.sample([call], [[0]] * min(clock.rounds([call]), missing))]
    return min(taken)


def _registers(space: Space, one: Candidate) -> int:
    return max((r.registers for r in space.resources(one)), default=0)


def _brief(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
