"""What the figures of a profile say one should do next: one table of rules, each with its condition and its sentence.

A rule holds or not for one phase; those that hold speak in the order of the table, the most useful first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..reports.profiling import Advice
from . import profile_says as says
from . import profile_when as when
from .profile_seen import Seen


@dataclass(frozen=True)
class Rule:
    """`holds` is the condition, `says` the sentence with its figures."""

    name: str
    holds: Callable[[Seen], bool]
    says: Callable[[Seen], str]


def advice(seen: Seen) -> tuple[Advice, ...]:
    """What the rules say of one phase.

    >>> advice(seen)[0].text
    '11 kernels where one would do: they take 412 us, moving the inputs and outputs once would take 38 us ...'
    """
    return tuple(Advice(rule.name, seen.phase.name, rule.says(seen)) for rule in RULES if rule.holds(seen))


RULES: Sequence[Rule] = (
    Rule("host copies", when.host_copies, says.host_copies),
    Rule("waits for the GPU", when.waits, says.waits),
    Rule("several launches", when.several_launches, says.several),
    Rule("dispatch dominates", when.dispatch, says.dispatch),
    Rule("idle between launches", when.idle, says.idle),
    Rule("copies", when.relayout, says.relayout),
    Rule("small grid", when.small_grid, says.small_grid),
    Rule("busy machine", when.starved, says.starved),
    Rule("one thread", when.one_thread, says.one_thread),
    Rule("tensor cores", when.tensor_cores, says.tensor_cores),
    Rule("bandwidth-bound", when.bandwidth, says.bandwidth),
    Rule("below the ceiling", when.slack, says.slack),
    Rule("latency-bound", when.latency, says.latency),
    Rule("registers", lambda s: when.limited(s, "registers"), lambda s: says.limited(s, "registers")),
    Rule("shared memory", lambda s: when.limited(s, "shared memory"), lambda s: says.limited(s, "shared memory")),
    Rule("blocks", lambda s: when.limited(s, "blocks"), lambda s: says.limited(s, "blocks")),
    Rule("compute-bound", when.compute, says.compute),
    Rule("stalls", when.stalled, says.stalled),
    Rule("intermediate results", when.temporary, says.temporary),
)
