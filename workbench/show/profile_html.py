"""Where the time of an op goes, as static html: phases, the timeline, tables behind tabs, and the advice last."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from html import escape

from ..reports.profiling import Profile
from . import profile_timeline, words
from . import profile_words as said
from .markup import MICRO, captions, rich, typeset

ROWS, MOST = 12, 48


def profile(report: Profile, heading: bool = True) -> str:
    """All of a profile; without `heading` it is a pane of a card, which has named the op already."""
    what, where, took = said.head(report)
    head = (
        f'<div class="row"><h3>{escape(what)}</h3><span class="soft">{escape(where)} &nbsp; {escape(took)}</span></div>'
    )
    if not heading:
        head = f'<p class="cap">{escape(report.case)}; {escape(where)}; {escape(took)}</p>'
    notes = [*report.notes, *(note for p in report.phases if (note := said.slow(p)))]
    drawn = profile_timeline.timeline(report, script=heading)  # a card is a widget, too, in which none runs
    inside = f"{head}{phases(report)}{drawn}{tabs(report)}{captions(notes)}{advice(report)}"
    return f'<div class="card profile">{inside}</div>' if heading else f'<div class="profile">{inside}</div>'


def phases(report: Profile) -> str:
    """A row for each phase, and what its kernels reach."""
    names, rows = said.phases(report, MICRO)
    reached = said.reached(report, MICRO)
    return _table(names, rows, text=(0, 1)) + (f'<p class="cap">{escape("; ".join(reached))}</p>' if reached else "")


def tabs(report: Profile) -> str:
    """The tables by kernel, by op, and of the counters: tabs that need no script."""
    group = f"wb-{secrets.token_hex(4)}"
    found = {
        "Kernels": _listed(*said.kernels(report, MICRO), text=(0, 1, 9)),
        "Ops": _listed(*said.ops(report, MICRO), text=(0, 1)),
        "Counters": _listed(*said.counters(report, MICRO), text=(0, 1, 9)),
    }
    shown = "".join(
        f'<details name="{group}"{" open" if i == 0 else ""}><summary>{title}</summary>{body}</details>'
        for i, (title, body) in enumerate((t, b) for t, b in found.items() if b)
    )
    return f'<div class="tabs">{shown}</div>' if shown else ""


def advice(report: Profile) -> str:
    """What the figures say, phase by phase; what is said of both phases with both names."""
    if not report.advice:
        return ""
    said_ = "".join(f"<p><b>{escape(a.phase)}</b> {typeset(rich(a.text))}</p>" for a in report.advice)
    return f'<div class="advice">{said_}</div>'


def _listed(names: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int]) -> str:
    """A table, all but its first rows folded away."""
    if not rows:
        return ""
    first = _table(names, rows[:ROWS], text, names_wide=True)
    rest = rows[ROWS:MOST]
    if not rest:
        return first
    left = len(rows) - MOST
    note = f'<p class="cap">and {left:,} more</p>' if left > 0 else ""
    more = escape(words.count(len(rows) - ROWS, "more row"))
    return f"{first}<details><summary>{more}</summary>{_table(names, rest, text, names_wide=True)}{note}</details>"


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int], *, names_wide: bool = False
) -> str:
    """Aligned columns under their heads; a column that is empty in every row is left out."""
    used = [i for i in range(len(names)) if any(row[i] for row in rows)]
    last = used[-1] if used else 0

    def kind(i: int) -> str:
        return (
            ' class="n"' if i not in text else ' class="w"' if i == last and i else ' class="name"' if wide(i) else ""
        )

    def wide(i: int) -> bool:
        return names_wide and i == 0

    def shown(i: int, value: str) -> str:
        if not wide(i):
            return escape(value)
        full = f' title="{escape(value)}"' if said.clipped(value) != value else ""
        return f'<span class="mono"{full}>{escape(said.clipped(value))}</span>'

    head = "".join(f"<th{kind(i)}>{escape(names[i])}</th>" for i in used)
    body = "".join("<tr>" + "".join(f"<td{kind(i)}>{shown(i, row[i])}</td>" for i in used) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if rows else ""
