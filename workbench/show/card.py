"""The card as static html: what is always in sight, and its tabs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from html import escape

from ..card import Card, HistoryRow, SlotRow
from . import code, html, words
from .markup import MICRO, captions, dot, folded, rich

HISTORY_OPEN, HISTORY_MOST = 12, 300


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


def panes(report: Card) -> dict[str, str]:
    """Title to html, for what there is to show."""
    found = {
        "Check": html.check(report.check, heading=False) if report.check else "",
        "Code": "".join(_code(*part) for part in report.code),
        "History": history(report.history) if report.history else "",
    }
    return {title: body for title, body in found.items() if body}


def _slots(slots: Sequence[SlotRow]) -> str:
    timed, rated, told = (any(getattr(s, f) for s in slots) for f in ("time_us", "share", "resources"))
    if not slots:
        return ""
    rows = []
    for s in slots:
        version = re.fullmatch(r"v\d+", s.runs)
        runs = (
            f'<span class="acc">{escape(s.runs)}</span>' if version else f'<span class="soft">{escape(s.runs)}</span>'
        )
        blank = '<span class="faint">not compared</span>' if version else ""
        agrees = _agrees(s) if s.agrees else blank
        time = words.duration(s.time_us * 1e-6, 3, MICRO) if s.time_us > 0 else ""
        cells = [f"<td>{escape(s.slot)}</td><td>{runs} <span class=soft>{escape(s.how)}</span></td><td>{agrees}</td>"]
        cells += [f'<td class="n">{time}</td>'] if timed else []
        cells += [f"<td>{_bar(s.share)}</td>"] if rated else []
        cells += [f'<td class="w">{rich(s.resources.replace(" | ", ", "))}</td>'] if told else []
        rows.append(f"<tr>{''.join(cells)}</tr>")
    names = "<th>slot</th><th>runs</th><th>agrees</th>" + ('<th class="n">time</th>' if timed else "")
    names += ("<th>of the ceiling</th>" if rated else "") + ("<th>resources</th>" if told else "")
    return f"<table><tr>{names}</tr>{''.join(rows)}</table>"


def _agrees(row: SlotRow) -> str:
    if row.unrun:
        return f'{dot("skip")}<span class="soft">{escape(row.agrees)}</span>'
    return f"{dot('pass' if row.ok else 'fail')}{escape(row.agrees)}"


def _bar(share: float) -> str:
    if share <= 0:
        return ""
    width = round(92 * min(share, 1))
    return f'<span class="track"><span class="bar" style="width:{width}px"></span></span>{words.percent(share)}'


def _code(slot: str, language: str, source: str) -> str:
    named = escape(words.LANGUAGES.get(language, language))
    return f'<p class="cap gap"><b>{escape(slot)}</b> <span class="soft">{named}</span></p>{code.pre(source, language)}'


def history(rows: Sequence[HistoryRow]) -> str:
    """Versions, newest first; all but the newest twelve folded away."""
    newest = sorted(rows, key=lambda h: -h.version)
    first = "".join(_version(h) for h in newest[:HISTORY_OPEN])
    rest = "".join(_version(h) for h in newest[HISTORY_OPEN:HISTORY_MOST])
    names = "<tr><th>version</th><th>slot</th><th>how</th><th>status</th>"
    names += '<th class="n">built in</th><th>agrees</th><th>title</th></tr>'
    older = ""
    if rest:
        left = len(newest) - HISTORY_MOST
        note = f'<p class="cap">and {left:,} before them</p>' if left > 0 else ""
        older = folded(words.count(len(newest) - HISTORY_OPEN, "older version"), f"<table>{names}{rest}</table>{note}")
    return f"<table>{names}{first}</table>{older}"


def _version(row: HistoryRow) -> str:
    colour = {"installed": "good", "refused": "bad"}.get(row.status, "soft")
    number = f'<span class="acc">v{row.version}</span>' if row.status == "installed" else f"v{row.version}"
    time = words.duration(row.seconds, 2, MICRO) if row.seconds > 0 else ""
    told = "; ".join(part for part in (row.title, row.detail) if part)
    told = told if len(told) <= 240 else told[:239] + "…"
    return (
        f'<tr><td>{number}</td><td>{escape(row.slot)}</td><td class="soft">{escape(row.how)}</td>'
        f'<td class="{colour}">{escape(row.status)}</td><td class="n">{time}</td>'
        f"<td>{escape(row.agrees)}</td><td class=w>{rich(told)}</td></tr>"
    )
