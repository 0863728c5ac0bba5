"""What the places of wrong elements have in common: "the last 3 of every 32 columns". Reads `Mismatch.wrong` only."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ..reports.report import Mismatch
from . import words


@dataclass(frozen=True)
class Pattern:
    """`said` is a phrase or ""; `columns` and `rows` are the period of block borders worth drawing, 0 for none."""

    said: str = ""
    rows: int = 0
    columns: int = 0


def folded(mismatch: Mismatch) -> bool:
    """True when one cell of the map stands for several elements."""
    rows, columns = len(mismatch.wrong), len(mismatch.wrong[0]) if mismatch.wrong else 0
    return (rows, columns) != (math.prod(mismatch.shape[:-1]), (mismatch.shape or (1,))[-1])


def find(mismatch: Mismatch) -> Pattern:
    """The rows or columns that hold the wrong elements, when whole runs of them do. Folded maps get none.

    A column counts when at least half of its elements are wrong; a phrase is given when such columns hold nine in ten
    of all wrong elements, and are not simply all of them.
    """
    if not mismatch.wrong or folded(mismatch):
        return Pattern()
    grid = [[bool(v) for v in row] for row in mismatch.wrong]
    total = sum(map(sum, grid))
    across = [sum(row[c] for row in grid) for c in range(len(grid[0]))]
    down = [sum(row) for row in grid]
    one = "column" if len(mismatch.shape) > 1 else "element"
    for name, sums, length in ((one, across, len(grid)), ("row", down, len(grid[0]))):
        marked = [i for i, n in enumerate(sums) if 2 * n >= length]
        if not 0 < len(marked) < len(sums) or 10 * sum(sums[i] for i in marked) < 9 * total:
            continue
        said, period = _phrase(_stretches(marked), len(sums), name)
        return Pattern(said, rows=period) if name == "row" else Pattern(said, columns=period)
    return Pattern()


def _stretches(marked: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers as (first, last)."""
    found: list[tuple[int, int]] = []
    for i in marked:
        if found and found[-1][1] == i - 1:
            found[-1] = (found[-1][0], i)
        else:
            found.append((i, i))
    return found


def _phrase(stretches: list[tuple[int, int]], length: int, noun: str) -> tuple[str, int]:
    steps = {b[0] - a[0] for a, b in itertools.pairwise(stretches)}
    widths = {last - first + 1 for first, last in stretches}
    if len(stretches) > 1 and len(steps) == len(widths) == 1 and (len(stretches) > 2 or length >= 2 * max(steps)):
        period, width = steps.pop(), widths.pop()
        first = stretches[0][0]
        ends = (first + width) % period == 0
        if first < period and (ends or first == 0):
            which = "last" if ends else "first"
            some = f"the {which} {width}" if width > 1 else f"the {which}"
            return f"{some} of every {period} {noun}s", period
    first, last = stretches[0]
    if len(stretches) == 1 and last == length - 1:
        width = last - first + 1
        return (f"the last {words.count(width, noun)}" if width > 1 else f"the last {noun}"), 0
    spans = [f"{a}" if a == b else f"{a}-{b}" for a, b in stretches]
    shown = ", ".join(spans[:4]) + (f" and {len(spans) - 4} more" if len(spans) > 4 else "")
    return f"{noun}{'' if spans == [shown] and first == last else 's'} {shown}", 0


def caption(mismatch: Mismatch, times: str = "x", known: str = "") -> str:
    """What the map shows: "out, 40 x 96: 270 of 3,840 elements never written, in the last 3 of every 32 columns".

    The count is left out where `known`, the sentence above, has it already.
    """
    counted = words.differing(mismatch)
    said = [] if counted in known else [counted]
    if find(mismatch).said:
        said.append(f"in {find(mismatch).said}")
    of = f"{mismatch.output}, {words.size(mismatch.shape, times)}" + (f", on {mismatch.on}" if mismatch.on else "")
    return of + (f": {', '.join(said)}" if said else "")
