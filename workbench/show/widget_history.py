"""The ledger as a widget: each former version in sight has a button that restores it, older ones a choice."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import ipywidgets

from ..reports.card import Card
from . import html, ledger


class Ledger:
    """Rows that line up, each with a button beside it where it is a former version.

    `restore(version)` is called by the buttons; what it raises is shown above the rows.
    """

    def __init__(self, report: Card, restore: Callable[[int], object]) -> None:
        self.newest = sorted(report.history, key=lambda h: -h.version)
        self.used = ledger.used_columns(self.newest)
        self.tight = ledger.is_tight(self.newest, self.used)
        self.restore = restore
        self.said = ipywidgets.HTML()
        # One layout and style for all of them: a widget of its own for each is what makes many buttons slow.
        self.layout = ipywidgets.Layout(width="70px", height="24px")
        self.wide = ipywidgets.Layout(width="calc(100% - 78px)")
        self.style = ipywidgets.ButtonStyle()
        self.widget = ipywidgets.VBox([self.said, *self._in_sight(), *self._older()])

    def _in_sight(self) -> list[ipywidgets.Widget]:
        head, *tables = ledger.separate(self.newest[: ledger.OPEN], self.used)
        rows: list[ipywidgets.Widget] = [self._beside(self._row(head))]
        for entry, table in zip(self.newest, tables, strict=False):
            beside = [self._button(entry.version)] if entry.status == "former" else []
            rows.append(self._beside(self._row(table), *beside))
        return rows

    def _row(self, table: str) -> ipywidgets.HTML:
        return ipywidgets.HTML(html.page(table), layout=self.wide)

    def _beside(self, shown: ipywidgets.Widget, *buttons: ipywidgets.Button) -> ipywidgets.HBox:
        row = ipywidgets.HBox([shown, *buttons])
        row.add_class("wb-version")
        return row

    def _older(self) -> list[ipywidgets.Widget]:
        """The table of the versions that are folded away, and a choice among those of them that can run again."""
        rest = self.newest[ledger.OPEN :]
        if not rest:
            return []
        told = ledger.cells(rest[: ledger.MOST - ledger.OPEN])
        table = ipywidgets.HTML(html.page(ledger.older(told, len(self.newest), self.used, self.tight)))
        options = [(f"v{h.version}  {h.slot}  {h.title}".strip(), h.version) for h in rest if h.status == "former"]
        if not options:
            return [table]
        choice = ipywidgets.Dropdown(options=options, layout={"width": "auto", "max_width": "420px"})
        return [table, self._beside(choice, self._button(choice))]

    def _button(self, version: int | ipywidgets.Dropdown) -> ipywidgets.Button:
        which = f"v{version}" if isinstance(version, int) else "that version"
        made = ipywidgets.Button(
            description="Restore", tooltip=f"Make the op run {which} again", layout=self.layout, style=self.style
        )
        made.add_class("wb-restore")
        made.on_click(lambda pressed: self._press(pressed, version if isinstance(version, int) else version.value))
        return made

    def _press(self, pressed: ipywidgets.Button, version: int) -> None:
        pressed.disabled, self.said.value = True, ""
        try:
            self.restore(version)
        except Exception as error:  # whatever went wrong, the person at the button must see it
            self.said.value = html.page(f'<p class="bad">{escape(str(error))}</p>')
        else:
            self.said.value = html.page(f'<p class="cap">v{version} runs again</p>')
        finally:
            pressed.disabled = False
