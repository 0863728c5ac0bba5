"""Which configuration is fastest, for as little time as possible: successive halving, then the best head to head.

K. Jamieson, A. Talwalkar, Non-stochastic best arm identification and hyperparameter optimization, AISTATS 2016: all
are timed briefly, the slower half is dropped, the rest timed for twice as long, and so on. Here those far from the
best go at once. Pure: what times, and what tells the time, are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Generic, TypeVar

ROUNDS = ((0.01, 1.4), (0.02, 1.2), (0.05, 1.1), (0.1, 1.05))  # seconds for each, and how much slower may stay
FINALISTS, FINAL_S, TURNS = 4, 0.05, 5  # head to head: in turn, so that drift of the clock meets all alike
K = TypeVar("K")


@dataclass
class Found(Generic[K]):
    """Seconds of one call by configuration, those timed head to head, and whether all went to its end."""

    seconds: dict[K, float] = field(default_factory=dict)
    finalists: list[K] = field(default_factory=list)
    complete: bool = False


def search(
    candidates: Iterable[K],
    time_one: Callable[[K, float], float | None],
    *,
    left_s: Callable[[], float],
    told: Callable[[K, float], object] = lambda *_: None,
    found: Found[K] | None = None,
) -> Found[K]:
    """Time them in rounds until one is left, or none can be told apart, or `left_s()` is no more than 0.

    >>> search([64, 128, 256], lambda block, s: times[block], left_s=lambda: 10.0).finalists
    [128]

    `time_one(candidate, budget_s)` gives seconds, or None for one that is out of the race. The first candidate is
    always timed, and head to head with the best ones, so that the gain over it is known. `found` is filled as it goes:
    an interrupt loses nothing.
    """
    found = found if found is not None else Found()
    alive: list[K] = list(candidates)
    default = alive[:1]
    rounds: list[dict[K, float]] = []
    for each_s, slack in ROUNDS:
        measured = []
        rounds.append({})
        for c in alive:
            if left_s() <= 0 and found.seconds:
                return found
            seconds = time_one(c, each_s)
            if seconds is not None:
                found.seconds[c] = rounds[-1][c] = seconds
                measured.append(c)
                told(c, seconds)
        alive = survivors(measured, found.seconds, slack)
        if len(alive) < 2:
            break
    first = [c for c in default if c in found.seconds and c not in alive[:FINALISTS]]
    found.finalists = _final([*alive[:FINALISTS], *first], time_one, found.seconds, left_s)
    found.complete = bool(found.finalists)
    if found.finalists:
        found.seconds.update(beside(found.finalists, found.seconds, rounds))
    return found


def beside(finalists: Sequence[K], seconds: Mapping[K, float], rounds: Sequence[Mapping[K, float]]) -> dict[K, float]:
    """The times of those that dropped out, as they were beside the winner in their last round.

    Rounds are minutes apart on a machine that others use too: a time of one is no time of another, a ratio is.

    >>> beside(["a"], {"a": 2.0, "b": 1.5}, [{"a": 1.0, "b": 1.5}])
    {'b': 3.0}
    """
    winner, last = finalists[0], {c: r for r in rounds for c in r}
    return {c: r[c] * seconds[winner] / r[winner] for c, r in last.items() if c not in finalists and winner in r}


def survivors(measured: Sequence[K], seconds: Mapping[K, float], slack: float) -> list[K]:
    """The faster half, fastest first; none more than `slack` times slower than the fastest.

    >>> survivors(["a", "b", "c", "d"], {"a": 1.0, "b": 1.1, "c": 1.2, "d": 3.0}, 1.4)
    ['a', 'b']
    """
    order = sorted(measured, key=lambda c: seconds[c])
    if not order:
        return []
    near = [c for c in order if seconds[c] <= slack * seconds[order[0]]]
    return near[: max(2, (len(order) + 1) // 2)]


def _final(
    alive: Sequence[K],
    time_one: Callable[[K, float], float | None],
    seconds: dict[K, float],
    left_s: Callable[[], float],
) -> list[K]:
    """Those left, fastest first, by the median of several turns each; one alone has nobody to be held against."""
    if len(alive) < 2:
        return list(alive)
    taken: dict[K, list[float]] = {c: [] for c in alive}
    for turn in range(TURNS):
        for c in alive if turn % 2 == 0 else reversed(alive):
            if left_s() <= 0:
                break
            one = time_one(c, FINAL_S)
            if one is not None:
                taken[c].append(one)
    full = [c for c in alive if taken[c] and len(taken[c]) == max(map(len, taken.values()))]
    if not full:
        return [min(alive, key=lambda c: seconds[c])]
    seconds.update({c: median(taken[c]) for c in full})
    return sorted(full, key=lambda c: seconds[c])


__all__ = ["Found", "search", "survivors"]
