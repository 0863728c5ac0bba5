"""The picture of where an output is wrong, as inline svg: red cells on a quiet ground, block borders dashed."""

from __future__ import annotations

from ..report import Mismatch
from . import pattern

LEVELS = (0.35, 0.6, 0.9)  # how opaque cells are, by the share of their elements that is wrong
WIDTH = 460


def error_map(mismatch: Mismatch) -> str:
    """An svg of at most 64 x 96 cells; "" when the mismatch has no map.

    Neighbouring cells of a row that are equally wrong are one rectangle, so that the whole stays small.
    """
    if not mismatch.wrong:
        return ""
    rows, columns = len(mismatch.wrong), len(mismatch.wrong[0])
    across = max(2, min(14, WIDTH // columns))
    down = max(across, min(14, 24 // rows))
    width, height = columns * across, rows * down
    found = pattern.find(mismatch)
    paths = "".join(
        f'<path fill="#c53030" opacity="{opacity}" d="{shape}"/>'
        for opacity, shape in zip(LEVELS, _shapes(mismatch.wrong))
        if shape
    )
    dashes = 'stroke="#8d96a6" stroke-dasharray="2 3" vector-effect="non-scaling-stroke"'
    borders = [f'x1="{c}" x2="{c}" y1="0" y2="{rows}"' for c in _every(found.columns, columns)]
    borders += [f'y1="{r}" y2="{r}" x1="0" x2="{columns}"' for r in _every(found.rows, rows)]
    return (
        f'<svg class="map" viewBox="0 0 {columns} {rows}" width="{width}" height="{height}" preserveAspectRatio="none" '
        'role="img" aria-label="where the output is wrong">'
        + paths
        + "".join(f"<line {border} {dashes}/>" for border in borders)
        + "</svg>"
    )


def _every(period: int, length: int) -> range:
    return range(period, length, period) if period else range(0)


def _shapes(wrong: tuple[tuple[float, ...], ...]) -> list[str]:
    """One path for each level of opacity, with a rectangle for each run of cells of that level."""
    shapes = [""] * len(LEVELS)
    for r, row in enumerate(wrong):
        start = 0
        levels = [_level(v) for v in row]
        for c in range(1, len(row) + 1):
            if c == len(row) or levels[c] != levels[start]:
                if levels[start] >= 0:
                    shapes[levels[start]] += f"M{start} {r}h{c - start}v1h{start - c}z"
                start = c
    return shapes


def _level(share: float) -> int:
    return -1 if share <= 0 else 0 if share < 0.34 else 1 if share < 0.67 else 2
