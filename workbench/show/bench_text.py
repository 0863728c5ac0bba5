"""A benchmark as text: for each case the op, then the others with their ratio and the verdict."""

from __future__ import annotations

from ..reports.measurement import Bench, BenchRow
from . import bench_words as said
from . import text, words

HEAD = ("on", "", "time", "ratio", "95 %", "verdict", "rate", "share", "peak")


def bench(report: Bench) -> str:
    """All rows as a table, what differs or failed below it, notes, and what to do next.

    >>> print(rmsnorm.bench())
    lab::rmsnorm bench | v7 on NVIDIA H200 | 3.1 s
      on          time     ratio  95 %          verdict    rate        share        peak
      llama bf16  v7             41.2 us ...
    """
    runs = "the reference" if report.version == "reference" else report.version
    head = f"{report.op} bench | {runs} on {report.machine} | {words.duration(report.seconds)}"
    slots = [r.slot for r in report.rows]
    cells, below = [], []
    for group in report.groups():
        own = said.own_of(group)
        for i, row in enumerate(group):
            cells.append(_cells(row, own, said.on(row, slots) if i == 0 else ""))
            if row.detail:
                below.append(text.indented(f"{row.contestant} on {said.on(row, slots)}: {row.detail}"))
    shown = [head, *text.table(HEAD, cells, right=(2, 3)), *below]
    shown += [text.indented(part) for part in (said.caption(report), said.ceilings(report)) if part]
    shown += [text.note(each) for each in report.notes]
    shown += [text.indented(f"next: {each}".replace("`", "")) for each in report.advice]
    return "\n".join(shown)


def _cells(row: BenchRow, own: str, on: str) -> tuple[str, ...]:
    verdict = said.verdict(row, own)
    return (
        on, row.contestant, said.time(row), said.ratio(row), said.within(row), verdict, said.rate(row), said.share(row),
        said.memory(row),
    )  # fmt: skip
