"""Plots as inline svg: matplotlib draws, the page's own colours and font apply, in light and dark alike."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours to draw in. In the svg each is the page's CSS variable of that name, with this one where there is none.
INK, SOFT, FAINT, LINE = "#1d2433", "#5b6577", "#8d96a6", "#e3e7ee"
ACCENT, GOOD, BAD, WARN = "#0b6bcb", "#2f855a", "#c53030", "#b7791f"
TINT, PAPER = "#f6f8fb", "#fefefe"
VARIABLES = {
    INK: "ink", SOFT: "soft", FAINT: "faint", LINE: "line", ACCENT: "accent", GOOD: "good", BAD: "bad", WARN: "warn",
    TINT: "tint", PAPER: "paper",
}  # fmt: skip
FONT_PX, PX_PER_INCH = 11, 72  # svg has 72 units an inch: a unit is then a pixel
GAP_PX = 13  # between two labels, one above the other

STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "workbench", "font.size": FONT_PX, "text.parse_math": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "axes.edgecolor": LINE, "axes.labelcolor": SOFT,
    "text.color": SOFT, "xtick.color": SOFT, "ytick.color": SOFT, "xtick.labelsize": FONT_PX,
    "ytick.labelsize": FONT_PX, "axes.labelsize": FONT_PX, "axes.titlesize": FONT_PX, "axes.grid": True,
    "axes.grid.axis": "y", "grid.color": LINE, "grid.linewidth": 1.0, "axes.spines.top": False,
    "axes.spines.right": False, "axes.spines.left": False, "xtick.major.size": 0, "ytick.major.size": 0,
    "xtick.minor.size": 0, "ytick.minor.size": 0, "axes.axisbelow": True, "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round", "axes.unicode_minus": True,
}  # fmt: skip


def svg(draw: Callable[[Axes], object], width: int = 440, height: int = 210, label: str = "") -> str:
    """What `draw` puts on one pair of axes, as an svg element of `width` x `height` pixels.

    >>> svg(lambda axes: axes.plot([1, 2, 4], color=plot.ACCENT), 440, 210, "GB/s over columns")
    '<svg class="plot" viewBox="0 0 440 210" width="440" height="210" role="img" ...'

    Draw in this module's colours: they follow the page's theme. `label` is read to those who do not see it. Text stays
    text. Where matplotlib is not installed: a sentence that says so.
    """
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ImportError:
        return '<p class="cap">not drawn: matplotlib is not installed</p>'
    written = io.StringIO()
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure((width / PX_PER_INCH, height / PX_PER_INCH), PX_PER_INCH, layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return element(written.getvalue(), width, height, label)


def element(document: str, width: int, height: int, label: str = "") -> str:
    """Matplotlib's svg document as an element of a page: no header, the page's font and colours, ids of its own."""
    from html import escape

    body = document[document.index(">", document.index("<svg")) + 1 : document.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"font: [^;\"]*?(\d[\d.]*)px[^;\"]*", r"font-size: \1px", body)
    body = re.sub(r" font-family: [^;\"]*;?", "", body)
    body = re.sub(r' transform="rotate\(-?0 [^"]*"', "", body)
    body = re.sub(r"(\d+\.\d\d)\d+(?=[^<>]*>)", r"\1", body)  # of places; what is written keeps its digits
    for colour, name in VARIABLES.items():
        body = body.replace(colour, f"var(--{name}, {colour})")
    body = re.sub(r"\s*\n\s*", " ", body).replace("> <", "><").strip()
    # A page may hold several, some of them hidden: what an id means must not depend on another svg.
    own = hashlib.sha256(body.encode()).hexdigest()[:8]
    used = set(re.findall(r"(?:url\(|href=\")#([\w-]+)", body))
    body = re.sub(r'(<g) id="([\w.-]+)"', lambda m: m[0] if m[2] in used else m[1], body)
    body = re.sub(r'\bid="([\w.-]+)"', rf'id="\1-{own}"', body)
    body = re.sub(r"(url\(|href=\")#([\w-]+)", rf"\1#\2-{own}", body)
    body = body.replace("xlink:href", "href")
    named = f' aria-label="{escape(label)}"' if label else ""
    shape = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    # The font goes here and not into a stylesheet: a widget or a host may have another one than ours.
    style = "max-width:100%;height:auto;font-family:inherit;overflow:visible"
    return f'<svg class="plot" {shape} role="img"{named} style="{style}">{body}</svg>'


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap_px: float = GAP_PX) -> None:
    """Names beside the last points of lines, pushed apart where they would touch: (x, y, text, colour) each.

    Call it last: it takes the limits of the axes as they are, in place of a legend.
    """
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    if not ends:
        return
    height = max(axes.bbox.height, 40)  # about what the axes will get: the layout is made when they are drawn

    def share(y: float) -> float:
        return float(axes.transAxes.inverted().transform(axes.transData.transform((axes.get_xlim()[0], y)))[1])

    order = sorted(ends, key=lambda e: share(e[1]))
    wanted = [share(e[1]) * height for e in order]
    for (_, _, text, colour), at in zip(order, apart(wanted, gap_px, height), strict=True):
        axes.annotate(
            text, (1.0, at / height), xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
            va="center", ha="left", color=colour, annotation_clip=False,
        )  # fmt: skip


def apart(wanted: Sequence[float], gap: float, top: float) -> list[float]:
    """Ascending places, moved as little as keeps each `gap` from the next and, if they fit, all below `top`.

    >>> apart([10, 12, 80], 13, 100)
    [4.5, 17.5, 80.0]
    """
    groups: list[list[float]] = []  # [sum of wanted starts, count]: neighbours that touch move as one
    for i, place in enumerate(wanted):
        groups.append([place - i * gap, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += count
    starts = [total / count for total, count in groups for _ in range(int(count))]
    most = top - (len(wanted) - 1) * gap
    return [min(start, most) + i * gap for i, start in enumerate(starts)]
