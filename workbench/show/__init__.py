"""How reports look: as text, as static html, and as a widget where a notebook can hold one.

`text` and `html` are pure functions from a report to a string. Only `widget` imports ipywidgets, and is itself imported
only where a kernel runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..report import Card, Report
from . import html, text

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def bundle(report: Report, restore: Callable[[int], object] | None = None) -> dict[str, object]:
    """The MIME bundle of a report: always text and html, and for a card in a live notebook the widget too.

    >>> sorted(bundle(report))
    ['text/html', 'text/plain']

    `restore(version)` is what the button of a card's History tab calls; see `widget.of`.
    """
    data: dict[str, object] = {"text/plain": str(report), "text/html": html.of(report)}
    if isinstance(report, Card) and live():
        try:
            from . import widget
        except ImportError:  # a kernel without ipywidgets
            return data
        data[WIDGET_VIEW] = {"version_major": 2, "version_minor": 0, "model_id": widget.of(report, restore).model_id}
    return data


def live() -> bool:
    """True in a running notebook kernel, without importing one."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and kernel.IPKernelApp.initialized()


__all__ = ["WIDGET_VIEW", "bundle", "html", "live", "text"]
