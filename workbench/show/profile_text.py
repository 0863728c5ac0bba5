"""Where the time of an op goes, as text: phases, kernels, ops, counters, and the advice last."""

from __future__ import annotations

from collections.abc import Sequence

from ..reports.profiling import Profile
from . import profile_words as said
from . import text, words

KERNELS, OPS = 12, 12


def profile(report: Profile, heading: bool = True) -> str:
    """Phases, kernels, ops, counters, advice.

    >>> print(profile(report))
    lab::rmsnorm on llama float32 | cuda, NVIDIA H200 | 20 calls, 1.2 s
                runs         one call  kernels  launches  dispatch  peak memory
      forward   v7 raw CUDA   44.1 us  41.2 us         1   11.3 us       128 MB
    """
    shown = [" | ".join(said.head(report))] if heading else []
    names, rows = said.phases(report)
    shown += text.table(names, rows, right=range(2, len(names)))
    shown += [f"  {part}" for part in said.reached(report)]
    shown += _table(*said.kernels(report), most=KERNELS, right=range(2, 9), noun="kernel")
    if report.ops:
        shown += _table(*said.ops(report), most=OPS, right=range(2, 7), noun="op")
    shown += _table(*said.counters(report), most=KERNELS, right=range(2, 9), noun="kernel")
    shown += [text.indented(f"{a.phase}: {a.text}") for a in report.advice]
    slowed = [note for p in report.phases if (note := said.slow(p))]
    return "\n".join([*shown, *(text.note(n) for n in (*report.notes, *slowed))])


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, most: int, right: Sequence[int], noun: str
) -> list[str]:
    if not rows:
        return []
    short = [(said.clipped(row[0], 48), *row[1:]) for row in rows[:most]]
    more = len(rows) - most
    return [
        "",
        *text.table(names, short, right=right),
        *([f"  and {words.count(more, f'more {noun}')}"] if more > 0 else []),
    ]
