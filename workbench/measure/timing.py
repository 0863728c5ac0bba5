"""Timing contestants against each other: rounds in which each runs once, in random order, until the verdicts stand.

What a round shares (another process, a clock that drifts) meets all of them and falls out of their ratios.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import statistics
from .clock import LONG_S, Call, Clock
from .statistics import EARLY, LEVEL, UNCLEAR, Interval

MOST = 2000  # rounds
GROWTH = 1.4  # from one look at the samples to the next: each look is a chance to be wrong
LEAST_OVER, LEAST_LONG = 5, 3  # rounds whatever the budget, and where one of them takes all of it
WILD = 1.0


@dataclass
class Timed:
    """The samples of contestants on one case: seconds a call, a list for each round. The first is the op itself."""

    names: tuple[str, ...]
    relevant: float
    rounds: list[list[float]] = field(default_factory=list)

    def of(self, number: int) -> list[float]:
        return [r[number] for r in self.rounds]

    def seconds(self, number: int, level: float = LEVEL) -> Interval:
        """A contestant's time with its interval."""
        return statistics.interval([math.log(s) for s in self.of(number)], level).exp()

    def log_ratio(self, number: int, level: float = LEVEL) -> Interval:
        """log of its time over the op's, round by round."""
        return statistics.interval([math.log(r[number] / r[0]) for r in self.rounds], level)

    def verdict(self, number: int, level: float = LEVEL) -> str:
        """FASTER, SLOWER, SAME or UNCLEAR. Times that are all over the place say nothing, however far apart."""
        if self.wild(number):
            return UNCLEAR
        return statistics.verdict(self.log_ratio(number, level), self.relevant)

    def wild(self, number: int) -> bool:
        """Is the middle half of its times, or of the op's, wider than the time itself?"""
        return max(statistics.spread(self.of(0)), statistics.spread(self.of(number))) > WILD

    @property
    def settled(self) -> bool:
        """Would more rounds change nothing? Every verdict stands with some reserve, and its interval is tight.

        Where there is nothing to compare with, the op's own time is.
        """
        tight = math.log1p(self.relevant)
        if len(self.names) == 1:
            return statistics.interval([math.log(s) for s in self.of(0)], EARLY).half < tight
        others = range(1, len(self.names))
        return all(self.log_ratio(i, EARLY).half < tight and self.verdict(i, EARLY) != UNCLEAR for i in others)


def compare(
    clock: Clock,
    calls: Sequence[Call],
    timed: Timed,
    budget_s: float,
    *,
    now: Callable[[], float],
    tell: Callable[[Timed], None] = lambda timed: None,
    seed: int = 0,
) -> Timed:
    """Rounds of these contestants, the first of which is the op, until all is settled or the budget is spent.

    >>> calls = [Call("v7", ours), Call("reference", theirs)]
    >>> timed = compare(CpuClock(), calls, Timed(("v7", "reference"), 0.04), 2.0, now=perf_counter)
    >>> timed.verdict(1), timed.log_ratio(1).exp()
    ('FASTER', Interval(low=4.8, mid=4.9, high=5.1))

    All of them were warmed up before. `timed` is filled as they are taken: an interrupt loses nothing. At least five
    rounds are taken, whatever the budget, three where one takes long and all of it; the first look is taken after
    as many as the clock says, twelve as a rule, and each later one after 1.4 times as many. An early end asks for 99 %
    where the end of the budget asks for 95 %.
    """
    shuffled = random.Random(seed)
    start, look, longest = now(), clock.least(calls), 0.0
    while len(timed.rounds) < MOST:
        batch = min(clock.rounds(calls), look - len(timed.rounds))
        orders = [shuffled.sample(range(len(calls)), len(calls)) for _ in range(batch)]
        before = now()
        timed.rounds += clock.sample(calls, orders)
        longest = max(longest, now() - before)
        tell(timed)
        if len(timed.rounds) >= look:
            if timed.settled:
                break
            look = max(look + 1, int(look * GROWTH))
        least = LEAST_LONG if longest > max(budget_s, LONG_S) else LEAST_OVER
        if now() - start + longest > budget_s and len(timed.rounds) >= least:
            break
    return timed
