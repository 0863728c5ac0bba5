"""The picture of where an output is wrong, as inline svg: red cells on a quiet ground, block borders dashed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..reports.report import NO_ROUNDING, Mismatch
from . import pattern, words

LEVELS = (0.35, 0.6, 0.9)  # how opaque cells are, by the share of their elements that is wrong, or by their error
ERRORS = (1e-3, 0.03, 0.3)  # shares of the largest error from which on a cell is drawn at a level
WIDTH, TALL = 460, 256  # pixels at most
LINES = 24  # borders at most; more would hide the cells
BAR, HIGH = 26, 44  # pixels of a histogram's column


def error_map(mismatch: Mismatch) -> str:
    """An svg of at most 64 x 96 cells; "" when the mismatch has no map. Where errors are known, darker is further off.

    Neighbouring cells of a row that are equally wrong are one rectangle, so that the whole stays small.
    """
    if not mismatch.wrong:
        return ""
    rows, columns = len(mismatch.wrong), len(mismatch.wrong[0])
    across = max(2, min(14, WIDTH // columns))
    down = min(max(across, min(14, 24 // rows)), TALL // rows)
    width, height = columns * across, rows * down
    down_lines, across_lines = borders_of(mismatch)
    levels = [[_level(v) for v in row] for row in mismatch.wrong]
    if mismatch.errors:  # how far off, of what is wrong: where all that is wrong is NaN the rest is rounding
        pairs = [zip(w, e, strict=True) for w, e in zip(mismatch.wrong, mismatch.errors, strict=True)]
        levels = [[_level_of(error) if wrong > 0 else -1 for wrong, error in row] for row in pairs]
    paths = "".join(
        f'<path fill="#c53030" opacity="{opacity}" d="{shape}"/>'
        for opacity, shape in zip(LEVELS, _shapes(levels))
        if shape
    )
    dashes = 'stroke="#8d96a6" stroke-dasharray="2 3" vector-effect="non-scaling-stroke"'
    borders = [f'x1="{c:g}" x2="{c:g}" y1="0" y2="{rows}"' for c in across_lines]
    borders += [f'y1="{r:g}" y2="{r:g}" x1="0" x2="{columns}"' for r in down_lines]
    return (
        f'<svg class="map" viewBox="0 0 {columns} {rows}" width="{width}" height="{height}" preserveAspectRatio="none" '
        'role="img" aria-label="where the output is wrong">'
        + paths
        + "".join(f"<line {border} {dashes}/>" for border in borders)
        + "</svg>"
    )


def borders_of(mismatch: Mismatch) -> tuple[list[float], list[float]]:
    """Where lines go, in cells from the top and the left: at the period of the pattern, else at declared blocks."""
    found = pattern.find(mismatch)
    columns = (mismatch.shape or (1,))[-1]
    if found.rows or found.columns:
        return _every(found.rows, len(mismatch.wrong), 1), _every(found.columns, len(mismatch.wrong[0]), 1)
    period = declared(mismatch)
    return [], _every(period, columns, len(mismatch.wrong[0]) / columns) if period else []


def declared(mismatch: Mismatch) -> int:
    """The first declared block whose borders can be drawn across the columns, 0 for none."""
    columns = (mismatch.shape or (1,))[-1]
    return next((b for b in mismatch.borders if 1 < b < columns and columns // b <= LINES), 0)


def _every(period: int, length: int, scale: float) -> list[float]:
    return [at * scale for at in range(period, length, period)] if period else []


def histogram(mismatch: Mismatch) -> str:
    """An svg of how many elements have a relative error of which power of ten; "" where that is not known.

    Columns are as high as the logarithm of their count: one element is seen beside a million.
    """
    if not mismatch.histogram:
        return ""
    most = max(count for _, count in mismatch.histogram)
    columns, names = [], []
    for i, (power, count) in enumerate(mismatch.histogram):
        high = max(3, round(HIGH * (1 + math.log10(count)) / (1 + math.log10(most))))
        wrong = ' class="off"' if power is not None and power >= NO_ROUNDING else ""
        place = f'x="{i * BAR + 3}" y="{HIGH - high}" width="{BAR - 6}" height="{high}"'
        columns.append(f"<rect{wrong} {place}><title>{count:,}</title></rect>")
        names.append(f'<text x="{i * BAR + BAR // 2}" y="{HIGH + 12}" text-anchor="middle">{words.power(power)}</text>')
    width = BAR * len(mismatch.histogram)
    return (
        f'<svg class="hist" viewBox="0 0 {width} {HIGH + 16}" width="{width}" height="{HIGH + 16}" font-size="9" '
        f'role="img" aria-label="relative errors by powers of ten">{"".join(columns)}{"".join(names)}</svg>'
    )


def _shapes(cells: Sequence[Sequence[int]]) -> list[str]:
    """One path for each level of opacity, with a rectangle for each run of cells of that level."""
    shapes = [""] * len(LEVELS)
    for r, levels in enumerate(cells):
        start = 0
        for c in range(1, len(levels) + 1):
            if c == len(levels) or levels[c] != levels[start]:
                if levels[start] >= 0:
                    shapes[levels[start]] += f"M{start} {r}h{c - start}v1h{start - c}z"
                start = c
    return shapes


def _level_of(error: float) -> int:
    return sum(error >= least for least in ERRORS) - 1


def _level(share: float) -> int:
    return -1 if share <= 0 else 0 if share < 0.34 else 1 if share < 0.67 else 2
