"""The card as a widget: what is always in sight, a line while work runs, and tabs of html panes.

What it adds to the static html is that it follows the op, and a way to act: restore a version, stop what runs.
"""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets

from ..reports.card import Card
from . import card, html
from .widget_history import Ledger
from .widget_running import Strip

Restore = Callable[[int], object]
KEPT = {
    "Check": "check", "Bench": "bench", "Profile": "profile", "Tune": "tuning", "Code": "code", "History": "history",
}  # fmt: skip


def of(report: Card, restore: Restore | None = None) -> ipywidgets.Widget:
    """The widget of a card.

    `restore(version)` is called by the buttons of the History tab; a `Card` that it returns is shown in place of this
    one, an error that it raises is shown above them. Without it there is no button.
    """
    return Living(report, restore).box


class Living:
    """A card on the page, `box`, that can be brought up to date: only what changed is drawn and sent again.

    `cover` is put before its head. With `later` a ledger that is not in sight is left to `complete`: its many buttons
    are what takes a page longest.
    """

    def __init__(self, report: Card, restore: Restore | None = None, cover: str = "", *, later: bool = False) -> None:
        self.restore, self.cover, self.later = restore, cover, later
        self.report: Card | None = None
        self.head, self.strip, self.tabs = ipywidgets.HTML(), Strip(), ipywidgets.Tab()
        self.tabs.add_class("wb-tabs")
        self.panes: dict[str, ipywidgets.Widget] = {}
        self.box = ipywidgets.VBox([self.head, self.strip.box])
        self.box.add_class("wb-card")
        self.update(report)

    def update(self, report: Card) -> None:
        """Show this card in place of the one before."""
        former, self.report = self.report, report
        sheets = ("report", "widget", *html.sheets(report))
        head = html.page(self.cover + card.head(report), *sheets)
        if head != self.head.value:
            self.head.value = head
        changed = {t for t, name in KEPT.items() if former is None or getattr(former, name) != getattr(report, name)}
        ledger = {"History"} & changed if self.restore is not None and report.history else set()
        drawn = {**card.panes(report, changed - ledger), **dict.fromkeys(ledger, "")}
        gone = [self.panes.pop(t) for t in changed if t in self.panes and (t not in drawn or t == "History")]
        for title, body in drawn.items():
            self._show(title, body)
        self._arrange(report.opened if changed else "")
        for each in gone:
            close(each)

    def _show(self, title: str, body: str) -> None:
        if title == "History" and self.restore is not None and self.report is not None:
            self.panes[title] = ipywidgets.VBox()
            if not self.later or self.report.opened == "History":
                self.complete()
        elif title in self.panes:
            self.panes[title].value = html.page(body)
        else:
            self.panes[title] = ipywidgets.HTML(html.page(body))

    def complete(self) -> None:
        """Make the ledger, if it was left."""
        self.later, pane = False, self.panes.get("History")
        if isinstance(pane, ipywidgets.VBox) and not pane.children and self.report is not None:
            pane.children = (Ledger(self.report, self._restored).widget,)

    def _arrange(self, opened: str) -> None:
        """Tabs in their order, opened at what changed; the one that was open stays open where nothing did."""
        titles = [t for t in KEPT if t in self.panes]
        was = self.tabs.titles[self.tabs.selected_index] if self.tabs.selected_index is not None else ""
        children = tuple(self.panes[t] for t in titles)
        if children != self.tabs.children:
            self.tabs.children, self.tabs.titles = children, tuple(titles)
            self.box.children = (self.head, self.strip.box, self.tabs) if titles else (self.head, self.strip.box)
        wanted = opened if opened in titles else was
        if wanted in titles and self.tabs.selected_index != titles.index(wanted):
            self.tabs.selected_index = titles.index(wanted)

    def _restored(self, version: int) -> None:
        assert self.restore is not None
        answer = self.restore(version)
        if isinstance(answer, Card):
            self.update(answer)

    def close(self) -> None:
        """Take it off the page; the static html below it shows again."""
        close(self.box)


def close(widget: ipywidgets.Widget) -> None:
    """Close a widget with all that is in it."""
    for child in getattr(widget, "children", ()):
        close(child)
    widget.close()
