"""A tuning as text: the best configuration, the table with the fastest on top, the line to paste."""

from __future__ import annotations

from ..reports.tuning import Tuning
from . import text, words
from . import tune_words as said

ROWS = 16


def tuning(report: Tuning, heading: bool = True) -> str:
    """What was found, on each case.

    >>> print(tuning(report))
    lab::matmul forward cpu v1 tuned for 1024 float32 | 8.1 s | AMD EPYC, 2 threads
      MC=96, KC=256: 14.2 ms, 1.31 x as fast as the first one
      12 configurations: 11 timed, 1 pruned
    """
    shown = [" | ".join(part for part in said.head(report) if part)] if heading else []
    shown += [text.indented(said.verdict(report)), text.indented(said.counts(report))]
    for case in report.cases:
        heads, rows = said.table(report, case)
        if not rows:
            continue
        if len(report.cases) > 1:
            shown += ["", f"  {case}"]
        shown += text.table(heads, [_clipped(r) for r in rows[:ROWS]], right=range(len(heads) - 1))
        more = len(rows) - ROWS
        shown += [f"  and {words.count(more, 'more configuration')}"] if more > 0 else []
    if report.line:
        shown += ["  to paste:", *(f"    {part}" for part in report.line.splitlines())]
    return "\n".join([*shown, *(text.note(n) for n in said.notes(report))])


def _clipped(row: list[str], most: int = 60) -> list[str]:
    reason = row[-1]
    return [*row[:-1], reason if len(reason) <= most else f"{reason[: most - 3]}..."]
