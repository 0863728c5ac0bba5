"""From samples to a verdict: locations, intervals that respect noise which comes in spells, FASTER / SLOWER / SAME.

Pure functions of numbers. How samples are taken is in `timing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

TRIM = 0.2  # of the samples, at each end: a sample that met another process says nothing of the kernel
RESAMPLES = 1000
SEED = 20_240
LEVEL, EARLY = 0.95, 0.99  # of the interval that is shown, and of the one that may end a measurement early
RELEVANT = {"cpu": 0.04, "cuda": 0.02}  # a difference up to this share is none
FASTER, SLOWER, SAME, UNCLEAR = "FASTER", "SLOWER", "SAME", "UNCLEAR"


@dataclass(frozen=True)
class Interval:
    """A location with its interval of confidence."""

    low: float
    mid: float
    high: float

    def exp(self) -> Interval:
        return Interval(math.exp(self.low), math.exp(self.mid), math.exp(self.high))

    @property
    def half(self) -> float:
        """Half of the width."""
        return (self.high - self.low) / 2


def location(values: Sequence[float]) -> float:
    """The mean of the middle 60 %: nearly as precise as a mean, nearly as robust as a median.

    >>> location([1.0, 1.0, 1.0, 1.0, 50.0])
    1.0
    """
    return float(_located(torch.tensor(values, dtype=torch.float64)[None])[0])


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The location of a series in the order of time, with its interval.

    >>> interval([0.1, 0.2, 0.15, 0.12, 0.18]).mid
    0.15

    A circular block bootstrap (Politis and Romano, 1992): what is drawn are runs of neighbours, as long as the noise
    remembers itself. Percentiles are widened for few samples as Hesterberg (2015, section 5.3) does. Always the same
    for the same values; torch's own generators are not touched.
    """
    series = torch.tensor(values, dtype=torch.float64)
    count = len(values)
    mid = location(values)
    if count < 3:
        return Interval(-math.inf, mid, math.inf)
    length = block_length(values)
    blocks = math.ceil(count / length)
    starts = torch.randint(count, (RESAMPLES, blocks, 1), generator=torch.Generator().manual_seed(SEED))
    index = ((starts + torch.arange(length)) % count).reshape(RESAMPLES, -1)[:, :count]
    found = _located(series[index])
    free = max(blocks, 2)  # as many values as are independent of each other
    wide = math.sqrt(free / (free - 1)) * _student(level, free - 1) / _normal(level)
    wide *= 1 + remembered(values) ** 2  # drawn runs hold less of the long spells than the series: by simulation
    tail = (1 - level) / 2
    low, high = (float(q) for q in torch.quantile(found, torch.tensor([tail, 1 - tail], dtype=torch.float64)))
    return Interval(mid + (low - mid) * wide, mid, mid + (high - mid) * wide)


def block_length(values: Sequence[float]) -> int:
    """How many neighbours are drawn together: Carlstein's (1986) rule for a series that remembers its last value.

    >>> block_length([1.0, -1.0] * 20), block_length([0.0] * 20 + [1.0] * 20)
    (1, 10)
    """
    count = len(values)
    rho = remembered(values)
    length = math.ceil((2 * rho / (1 - rho * rho)) ** (2 / 3) * count ** (1 / 3))
    return max(1, min(length, count // 4))


def remembered(values: Sequence[float]) -> float:
    """The autocorrelation to reckon with: without its bias in short series (Kendall, 1954), at least 0."""
    rho = autocorrelation(values)
    count = len(values)
    sure = 1 / math.sqrt(count)  # as large as it is by chance
    return min(rho + (1 + 4 * rho) / count, 0.95) if rho > sure else 0.0


def autocorrelation(values: Sequence[float]) -> float:
    """Of each value with the next, by ranks, so that a single outlier does not hide it; 0 for a constant."""
    ranks = torch.tensor(values, dtype=torch.float64).argsort().argsort().double()
    if len(values) < 4 or len(set(values)) == 1:
        return 0.0
    centred = ranks - ranks.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred * centred).sum())


def verdict(log_ratio: Interval, relevant: float) -> str:
    """What the interval of log(time of the other / time of the op) says; `relevant` is the least share that counts.

    >>> verdict(Interval(0.08, 0.10, 0.12), 0.04), verdict(Interval(-0.01, 0.0, 0.01), 0.04)
    ('FASTER', 'SAME')

    FASTER: the op is. The difference must be relevant, and the interval keep clear of half of that; for SAME the
    whole interval lies within what is relevant. Everything else is UNCLEAR.
    """
    least = math.log1p(relevant)
    if -least < log_ratio.low and log_ratio.high < least:
        return SAME
    if log_ratio.mid > least and log_ratio.low > least / 2:
        return FASTER
    if log_ratio.mid < -least and log_ratio.high < -least / 2:
        return SLOWER
    return UNCLEAR


def spread(values: Sequence[float]) -> float:
    """The width of the middle half, as a share of the middle: 0.02 on a quiet machine."""
    if len(values) < 4:
        return 0.0
    quarter, middle, three = torch.quantile(
        torch.tensor(values, dtype=torch.float64), torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    ).tolist()
    return (three - quarter) / middle if middle else 0.0


def drift(values: Sequence[float]) -> float:
    """How much larger the last third is than the first, as a share: 0.1 for 10 %."""
    third = len(values) // 3
    if third < 3:
        return 0.0
    return location(values[-third:]) / location(values[:third]) - 1


def _located(rows: torch.Tensor) -> torch.Tensor:
    count = rows.shape[1]
    cut = int(count * TRIM)
    return rows.sort(dim=1).values[:, cut : count - cut].mean(dim=1)


def _normal(level: float) -> float:
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))


def _student(level: float, free: int) -> float:
    """The two-sided quantile of Student's t: Cornish and Fisher's expansion, exact for one and two degrees."""
    if free == 1:
        return math.tan(math.pi * level / 2)
    if free == 2:
        return level * math.sqrt(2 / (1 - level * level))
    z = _normal(level)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3
