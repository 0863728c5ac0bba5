"""How reports look: as text, as static html, and as a widget where one is asked for in a notebook.

`text` and `html` are pure functions from a report to a string. Only `widget` imports ipywidgets, and is itself imported
only where a kernel runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..reports.card import Card
from ..reports.inspection import Comparison, Inspection
from ..reports.report import Report
from . import html, text


def bundle(report: Report) -> dict[str, str]:
    """The MIME bundle of a report: text, and html that needs neither a kernel nor a script.

    >>> sorted(bundle(report))
    ['text/html', 'text/plain']

    A card's html has its tabs too. It carries no widget view: a notebook that is opened again without its kernel
    would show an error in the place of the numbers. The widget is `widget_of`.
    """
    return {"text/plain": str(report), "text/html": html.of(report)}


def widget_of(report: Card | Inspection | Comparison, restore: Callable[[int], object] | None = None) -> object:
    """The report as a widget, where a notebook runs and ipywidgets is there; else the report itself.

    A card's History tab has a button at each version; `restore(number)` returns the new card. An inspection has a
    choice of stages and lines.
    """
    if not live():
        return report
    try:
        from . import inspect_widget, widget
    except ImportError:
        return report
    return widget.of(report, restore) if isinstance(report, Card) else inspect_widget.of(report)


def live() -> bool:
    """True in a running notebook kernel, without importing one."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and kernel.IPKernelApp.initialized()


__all__ = ["bundle", "html", "live", "text", "widget_of"]
