"""The outcome of `op.tune()`: one row a configuration, the best of them, and the line to paste. Plain frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .report import Report, data_frame

TIMED, PRUNED, NOT_RUN, NOT_REACHED = "timed", "pruned", "not run", "not reached"
INTERRUPTED = "interrupted"
Value = int | float | bool | str | None
Config = Mapping[str, Value]


def spelled(config: Config) -> str:
    """A configuration in one line.

    >>> spelled({"BLOCK": 128, "num_warps": 4})
    'BLOCK=128, num_warps=4'
    """
    return ", ".join(f"{n}={v}" for n, v in config.items())


@dataclass(frozen=True)
class TuningRow:
    """One configuration on one case.

    `status` is "timed", "pruned" (its resources or a `require` rule it out, nothing was run), "build" (it does not
    compile), "resources" (it does not fit the device), what went wrong in its trial ("mismatch", "crash", "hang",
    "overrun", "mutation", "error"), "lost" (the worker that had it is gone), "not run" (compiled, and no device here)
    or "not reached" (the budget ended, or an interrupt came); `reason` is a sentence on all but "timed". `time_us` is
    the time of one call, 0.0 where there is none; `final` says that it was timed head to head with the best ones.
    `registers` a thread, `shared` bytes a block and `spills` bytes a thread are the largest among its kernels, 0 on a
    CPU. `remembered` rows come from an earlier call, in this process or another. `kernel` is the autotuned kernel that
    it belongs to, where an op launches several; `place` the executor's worker that measured it.
    """

    config: Config
    status: str
    time_us: float = 0.0
    reason: str = ""
    case: str = ""
    kernel: str = ""
    registers: int = 0
    shared: int = 0
    spills: int = 0
    final: bool = False
    remembered: bool = False
    is_default: bool = False
    place: str = ""

    @property
    def ok(self) -> bool:
        """Was it timed?"""
        return self.status == TIMED


@dataclass(frozen=True)
class Tuning(Report):
    """The outcome of `op.tune()`.

    >>> found = matmul.tune("1024")
    >>> found.best.config, found.best.status
    ({'MR': 6, 'NV': 2, 'KC': 256, 'MC': 96}, 'timed')

    `cases` are labels in the order in which they were tuned. `trials` counts the configurations that were built, tried
    or timed now: 0 where all was remembered. `machine` is what it ran on, `ended` why it did not try all of them.
    """

    op: str
    slot: str
    device: str
    version: int
    language: str
    cases: tuple[str, ...]
    rows: tuple[TuningRow, ...]
    line: str = ""
    trials: int = 0
    seconds: float = 0.0
    budget_s: float = math.inf
    machine: str = ""
    ended: str = ""
    notes: tuple[str, ...] = ()
    frozen: bool = field(default=False)

    @property
    def ok(self) -> bool:
        """Was a configuration found for every case?"""
        return bool(self.cases) and {r.case for r in self.winners.values()} == set(self.cases)

    @property
    def stopped(self) -> bool:
        """Did an interrupt end it? A budget that is spent is no interrupt."""
        return self.ended == INTERRUPTED

    @property
    def winners(self) -> dict[tuple[str, str], TuningRow]:
        """The fastest row of each (case, kernel); of those that were timed head to head, where some were."""
        found: dict[tuple[str, str], TuningRow] = {}
        for row in self.rows:
            key = row.case, row.kernel
            if row.ok and (key not in found or _order(row) < _order(found[key])):
                found[key] = row
        return found

    @property
    def best(self) -> TuningRow | None:
        """The fastest row; with several cases that of the configuration which loses least over all of them."""
        winners = self.winners
        if not winners:
            return None
        kernel = next(iter(winners))[1]
        mine = {case: row for (case, k), row in winners.items() if k == kernel}
        times = {(r.case, spelled(r.config)): r for r in self.rows if r.ok and r.kernel == kernel}
        configs = dict.fromkeys(spelled(r.config) for r in self.rows if r.ok and r.kernel == kernel)
        losses = {}
        for config in configs:
            rows = [times.get((case, config)) for case in mine]
            known = [r for r in rows if r is not None]
            if len(known) == len(mine):
                losses[config] = sum(math.log(r.time_us / mine[r.case].time_us) for r in known)
        first = next(iter(mine))
        if len(mine) == 1 or not losses:
            return mine[first]
        return times[first, min(losses, key=lambda c: losses[c])]

    @property
    def speedup(self) -> float:
        """The time of the first configuration over that of the best, on the first case; 0.0 where one is missing."""
        best = self.best
        default = next((r for r in self.rows if r.is_default and r.ok and best and r.case == best.case), None)
        return default.time_us / best.time_us if best and default and best.time_us else 0.0

    def to_dict(self) -> dict:
        """The whole report as JSON-ready data, with `ok`, `best` (the configuration) and `speedup` added."""
        best = self.best
        return {**super().to_dict(), "best": dict(best.config) if best else None, "speedup": self.speedup}

    def to_dataframe(self) -> Any:
        """The rows as a pandas DataFrame, one column a field and one for each tuned name.

        WorkbenchError where pandas is not installed.
        """
        return data_frame([{**{k: v for k, v in vars(r).items() if k != "config"}, **r.config} for r in self.rows])

    def __str__(self) -> str:
        from ..show.tune_text import tuning

        return tuning(self)


def _order(row: TuningRow) -> tuple[bool, float]:
    return not row.final, row.time_us


__all__ = ["INTERRUPTED", "NOT_REACHED", "NOT_RUN", "PRUNED", "TIMED", "Config", "Tuning", "TuningRow", "spelled"]
