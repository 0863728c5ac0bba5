"""The card as a widget: the head, then tabs of plain html panes. The only importer of ipywidgets.

What it adds to the static html is a way to act: the History tab can restore a former version.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import ipywidgets

from ..card import Card
from . import card, html

Restore = Callable[[int], object]


def of(report: Card, restore: Restore | None = None) -> ipywidgets.Widget:
    """The widget of a card.

    `restore(version)` is called by the button of the History tab; a `Card` that it returns is shown in place of this
    one, an error that it raises is shown beside the button. Without it there is no button.
    """
    box = ipywidgets.VBox()
    box.add_class("wb-card")
    _fill(box, report, restore)
    return box


def _fill(box: ipywidgets.VBox, report: Card, restore: Restore | None) -> None:
    """Give `box` its children, closing those that it had."""
    former = _all(box)
    head = ipywidgets.HTML(html.page(card.head(report), "report", "widget"))
    found = card.panes(report)
    panes = {title: ipywidgets.HTML(html.page(body)) for title, body in found.items()}
    if restore and "History" in panes:
        panes["History"] = _history(box, report, restore, panes["History"])
    tabs = ipywidgets.Tab(children=list(panes.values()), titles=tuple(panes))
    tabs.add_class("wb-tabs")
    if report.opened in panes:
        tabs.selected_index = list(panes).index(report.opened)
    box.children = (head, tabs) if panes else (head,)
    for widget in former:
        widget.close()


def _all(box: ipywidgets.Box) -> list[ipywidgets.Widget]:
    """Every widget below `box`."""
    found: list[ipywidgets.Widget] = []
    for child in box.children:
        found += [child, *(_all(child) if isinstance(child, ipywidgets.Box) else ())]
    return found


def _history(box: ipywidgets.VBox, report: Card, restore: Restore, rows: ipywidgets.Widget) -> ipywidgets.Widget:
    """The table of versions, below a choice of those that can run again."""
    former = sorted((h for h in report.history if h.status == "former"), key=lambda h: -h.version)
    if not former:
        return rows
    options = [(f"v{h.version}  {h.slot}  {h.title}".strip(), h.version) for h in former]
    choice = ipywidgets.Dropdown(options=options, layout={"width": "auto", "max_width": "420px"})
    button = ipywidgets.Button(
        description="Restore", tooltip="Make the op run this version again", layout={"width": "auto"}
    )
    said = ipywidgets.HTML()

    def press(_: ipywidgets.Button) -> None:
        button.disabled = True
        said.value = ""
        try:
            answer = restore(choice.value)
        except Exception as error:  # whatever went wrong, the person at the button must see it
            said.value = html.page(f'<span class="bad">{escape(str(error))}</span>')
            return
        finally:
            button.disabled = False
        if isinstance(answer, Card):
            _fill(box, answer, restore)
        else:
            said.value = html.page(f'<span class="soft">restored v{choice.value}</span>')

    button.on_click(press)
    row = ipywidgets.HBox([choice, button, said])
    row.add_class("wb-restore")
    return ipywidgets.VBox([row, rows])
