"""Configurations of autotuned kernels in a trial: the smallest case is tried in each of them; what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..reports.report import Outcome
from ..tiers import Kernel
from ..trial import Result, Step
from .evidence import Evidence

Judged = tuple[str, Evidence | None]


def in_turn(
    kernel: Kernel, found: Sequence[Evidence], steps: Sequence[Step], judged: Sequence[Judged]
) -> tuple[list[Step], list[Judged]]:
    """Behind all other steps those of a kernel's smallest cases once more, in each further configuration."""
    steps, judged = list(steps), list(judged)
    turns = kernel.turns([e.values for e in found])
    for i, count in turns.items():
        at = next(n for n, (slot, e) in enumerate(judged) if slot == kernel.slot and e is found[i])
        for turn in range(1, count):
            steps.append(replace(steps[at], turn=turn))
            judged.append(judged[at])
        steps[at] = replace(steps[at], turn=0)
    return steps, judged


def folded(
    tried: Sequence[tuple[tuple[str, Evidence], Result, Outcome]],
) -> tuple[tuple[Outcome, ...], tuple[str, ...]]:
    """One outcome a case: the first bad one of its configurations, which it names. And notes on those left out."""
    groups: dict[tuple[str, int], list[tuple[Result, Outcome]]] = {}  # evidence is one a case
    for (slot, e), result, outcome in tried:
        groups.setdefault((slot, id(e)), []).append((result, outcome))
    notes: dict[str, None] = {}
    outcomes = []
    for group in groups.values():
        if len(group) > 1:
            notes |= {o.detail: None for r, o in group if o.status == "skip" and r.chosen}
        bad = [(r, o) for r, o in group if o.status not in ("agree", "skip")]
        ran = [(r, o) for r, o in group if o.status != "skip"]
        if not ran and len(group) > 1 and all(r.chosen for r, _ in group):
            last = replace(group[-1][1], status="error", detail=f"no configuration fits: {group[-1][1].detail}")
            outcomes.append(last)
            continue
        result, outcome = (bad or ran or group)[0]
        outcomes.append(replace(outcome, how="; ".join(result.chosen)) if bad else outcome)
    return tuple(outcomes), tuple(notes)
