"""The card as static html: what is always in sight, and its tabs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Sequence
from html import escape

from ..reports.card import TABS, Card, SlotRow
from . import code, html, ledger, words
from .markup import MICRO, captions, dot, rich


def card(report: Card) -> str:
    """The head, then Check, Code and History as far as they exist: tabs that need no script, one opened."""
    group = f"wb-{secrets.token_hex(4)}"  # makes the details of one card exclude each other
    found = panes(report)
    opened = report.opened if report.opened in found else next(iter(found), "")
    tabs = "".join(
        f'<details name="{group}"{" open" if title == opened else ""}><summary>{title}</summary>{body}</details>'
        for title, body in found.items()
    )
    return f'<div class="card">{head(report)}{f"<div class=tabs>{tabs}</div>" if tabs else ""}</div>'


def head(report: Card) -> str:
    """What is always in sight: name, signature, a row for each slot, notes."""
    named = f'<div class="row"><h3>{escape(report.name)}</h3><code class="soft">{escape(report.signature)}</code></div>'
    doc = captions(report.doc.strip().splitlines()[:1])
    notes = captions(report.notes)
    return f"{named}{doc}{_slots(report.slots)}{captions(words.costs(report))}{notes}"


def panes(report: Card, wanted: Collection[str] = TABS) -> dict[str, str]:
    """Title to html, for what there is to show of what is wanted."""
    reports = {"Check": report.check, "Bench": report.bench, "Profile": report.profile, "Tune": report.tuning}
    draw: dict[str, Callable[[], str]] = {
        "Code": lambda: "".join(_code(*part) for part in report.code),
        "History": lambda: history(report) if report.history else "",
    }
    for title, pane in reports.items():
        draw[title] = lambda pane=pane: html.body(pane, heading=False) if pane is not None else ""  # type: ignore[misc]
    shown = {title: draw[title]() for title in TABS if title in wanted}
    return {title: body for title, body in shown.items() if body}


def _slots(slots: Sequence[SlotRow]) -> str:
    if not slots:
        return ""
    time, ceiling = words.measured(slots)
    timed, rated = (any(getattr(s, f) for s in slots) for f in ("time_us", "share"))
    rows = []
    for s in slots:
        version = re.fullmatch(r"v\d+", s.runs)
        runs = f'<span class="{"acc" if version else "soft"}">{escape(s.runs)}</span>'
        blank = '<span class="faint">not compared</span>' if version else ""
        agrees = _agrees(s) if s.agrees else blank
        cells = [f"<td>{escape(s.slot)}</td><td>{runs} <span class=soft>{escape(s.how)}</span></td><td>{agrees}</td>"]
        cells += [f'<td class="n">{_time(s, time)}</td>'] if timed else []
        cells += [f"<td>{_bar(s, ceiling)}</td>"] if rated else []
        cells += [f'<td class="w">{rich(s.resources.replace(" | ", ", "))}</td>']
        rows.append(f"<tr>{''.join(cells)}</tr>")
    names = "<th>slot</th><th>runs</th><th>agrees</th>" + (f'<th class="n">{escape(time)}</th>' if timed else "")
    names += f"<th>{escape(ceiling)}</th>" if rated else ""
    names += f'<th class="w">{"resources" if any(s.resources for s in slots) else ""}</th>'
    return f'<table class="slots"><tr>{names}</tr>{"".join(rows)}</table>'


def _time(row: SlotRow, head: str) -> str:
    value, _, more = words.slot_time(row, head, MICRO).partition(" ")
    unit, _, more = more.partition(" ")
    return f"{value} {unit}".strip() + (f' <span class="soft">{escape(more)}</span>' if more else "")


def _agrees(row: SlotRow) -> str:
    if row.unrun:
        return f'{dot("skip")}<span class="soft">{escape(row.agrees)}</span>'
    judged, _, left = row.agrees.partition(", ")
    more = f', <span class="warn">{escape(left)}</span>' if left else ""
    return f"{dot('pass' if row.ok else 'fail')}{escape(judged)}{more}"


def _bar(row: SlotRow, head: str) -> str:
    share, more = words.slot_share(row, head)
    shown = f'<span class="soft">{escape(more)}</span>' if more else ""
    if not share:
        return shown
    track = f'<span class="track"><span class="bar" style="width:{round(92 * min(row.share, 1))}px"></span></span>'
    return f"{track}{share} {shown}".strip()


def _code(slot: str, language: str, source: str) -> str:
    named = escape(words.LANGUAGES.get(language, language))
    return f'<p class="cap gap"><b>{escape(slot)}</b> <span class="soft">{named}</span></p>{code.pre(source, language)}'


def history(report: Card) -> str:
    """The ledger, and how a version comes back."""
    former = [h.version for h in report.history if h.status == "former"]
    name = report.name.rpartition("::")[2]
    said = [f"`{name}.restore({max(former)})` puts a former version back; compiled callers follow"] if former else []
    return ledger.table(report.history) + captions(said)
