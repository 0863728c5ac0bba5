"""The line of slow work while it runs: how far it is, what is left, the best so far, and a button that stops it."""

from __future__ import annotations

from html import escape

import ipywidgets

from . import html, progress
from .progress import Told


class Strip:
    """That line: `box` is nothing until `tell`, and nothing again after `end`."""

    def __init__(self) -> None:
        self.line = ipywidgets.HTML(layout={"flex": "1 1 auto"})
        self.button: ipywidgets.Button | None = None
        self.box = ipywidgets.HBox()
        self.box.add_class("wb-running")

    def tell(self, told: Told, styled: bool = False) -> None:
        """Show how far the work is. `styled` brings the stylesheet along, for a line outside a card."""
        self.line.value = html.page(line(told), *(("report", "widget") if styled else ()))
        if self.button is None:
            self.button = _stop()
            self.box.children = (self.line, self.button)

    def end(self) -> None:
        if self.button is not None:
            self.box.children = ()
            self.button.close()
            self.button = None

    def bundle(self) -> dict:
        """What shows it where a cell runs; the html is for whoever knows no widgets."""
        return {**self.box._repr_mimebundle_(), "text/html": self.line.value, "text/plain": ""}

    def close(self) -> None:
        self.end()
        for each in (self.line, self.box):
            each.close()


def line(told: Told) -> str:
    """A bar and one sentence."""
    share = min(told.done / told.of, 1.0) if told.of > 0 else 0.0
    track = f'<span class="track long"><span class="bar" style="width:{100 * share:.0f}%"></span></span>'
    best = getattr(told, "best", "")
    found = f' <span class="acc">best so far {escape(best)}</span>' if best else ""
    return f'<p class="cap">{track}{escape(progress.counted(told))}: {escape(told.at)}{found}</p>'


def _stop() -> ipywidgets.Button:
    made = ipywidgets.Button(
        description="Stop", tooltip="End this work and keep what there is", layout={"width": "60px", "height": "24px"}
    )
    made.add_class("wb-stop")
    made.on_click(lambda _: progress.stop())
    # From 7.4 on ipykernel hands what a widget says to the thread that spoke to it last: that is the one at work, which
    # does not listen. Without this note JupyterLab's own choice holds, a thread beside it.
    getattr(made.comm, "__dict__", {}).pop("_reply_subshell_id", None)
    return made
