"""An inspection as a widget: choose a stage and a source line, see what became of it; or two versions side by side.

Made of ipywidgets' core widgets alone: the list of lines is a `Select`, what is shown is html under the same style
as the static form.
"""

from __future__ import annotations

from dataclasses import replace

import ipywidgets

from ..reports.inspection import Comparison, Inspection, Stage, numbered
from . import html, inspect_html

ALL = 0
SHEETS = ("report", "inspect", "widget")


def of(report: Inspection | Comparison) -> ipywidgets.Widget:
    """The widget of an inspection or of two."""
    made = _comparison(report) if isinstance(report, Comparison) else _inspection(report)
    made.add_class("wb-card")
    return made


def _inspection(report: Inspection) -> ipywidgets.Widget:
    names = [s.name for s in report.stages]
    stage = ipywidgets.ToggleButtons(options=names, value=names[-1], style={"button_width": "auto"})
    lines = ipywidgets.Select(
        options=options(report), value=ALL, rows=min(24, len(report.source.text.splitlines()) + 2),
        layout={"width": "100%"},
    )  # fmt: skip
    context = ipywidgets.Checkbox(value=False, description="in context", indent=False, layout={"width": "auto"})
    shown = ipywidgets.HTML()

    def draw(_: object = None) -> None:
        found = report.stage(stage.value)
        chosen = found if lines.value == ALL or context.value else only(found, lines.value)
        marked = lines.value if context.value else ALL
        shown.value = html.page(f'<div class="inspect">{inspect_html.stage(chosen, marked=marked)}</div>')

    for control in (stage, lines, context):
        control.observe(draw, "value")
    draw()
    lines.add_class("wb-source")
    stage.add_class("wb-stages")
    top = ipywidgets.HTML(html.page(inspect_html.head(report) + inspect_html.findings(report), *SHEETS))
    panes = ipywidgets.GridBox(
        [lines, ipywidgets.VBox([ipywidgets.HBox([stage, context]), shown])],
        layout={"grid_template_columns": "minmax(0, 1fr) minmax(0, 1fr)", "grid_gap": "0 18px", "margin": "12px 0 0"},
    )
    return ipywidgets.VBox([top, panes])


def options(report: Inspection) -> list[tuple[str, int]]:
    """What the list of lines offers: all of them, or one with the number of instructions that came from it."""
    last = report.stages[-1]
    rows = numbered(report.source)
    width = len(str(rows[-1][0]))
    offered = [("all lines", ALL)]
    for n, text in rows:
        count = len(last.at(n))
        offered.append((f"{n:>{width}} {count or '':>4}  {text}".replace(" ", "\N{NO-BREAK SPACE}"), n))
    return offered


def only(stage: Stage, line: int) -> Stage:
    """The part of a stage that came from one line."""
    return replace(stage, entries=stage.at(line), counts=())


def _comparison(report: Comparison) -> ipywidgets.Widget:
    top = ipywidgets.HTML(html.page(inspect_html.numbers(report), *SHEETS))
    names = list(report.names)
    stage = ipywidgets.ToggleButtons(options=names, value=names[-1] if names else None, style={"button_width": "auto"})
    stage.add_class("wb-stages")
    shown = ipywidgets.HTML()

    def draw(_: object = None) -> None:
        shown.value = html.page(f'<div class="inspect">{inspect_html.diff(report, stage.value)}</div>')

    if names:
        stage.observe(draw, "value")
        draw()
    return ipywidgets.VBox([top, stage, shown] if names else [top])
