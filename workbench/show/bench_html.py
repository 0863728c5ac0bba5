"""A benchmark as static html: the picture on the left, the table on the right, then how it was measured, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..reports.measurement import Bench, BenchRow, names
from . import bench_plot, words
from . import bench_words as said
from .markup import MICRO, captions, folded, rich, typeset

OPEN, MOST = 12, 200  # groups of rows in sight, and at all


def bench(report: Bench, heading: bool = True) -> str:
    """The whole report; `heading` names the op above it, which a card has done already."""
    drawn = [f'{svg}<p class="cap">{typeset(escape(about))}</p>' for svg, about in bench_plot.pictures(report)]
    said_below = below(report)
    if report.sweep or len(report.groups()) > 1:  # a wide or a long table: below its pictures
        pictures = "".join(f"<div>{each}</div>" for each in drawn)
        body = (f'<div class="two">{pictures}</div>' if drawn else "") + table(report) + said_below
    else:
        right = table(report) + said_below
        body = f'<div class="two"><div>{"".join(drawn)}</div><div>{right}</div></div>' if drawn else right
    if not heading:
        return body
    runs = "the reference" if report.version == "reference" else report.version
    soft = f"{escape(runs)} on {escape(report.machine)}, {words.duration(report.seconds, 2, MICRO)}"
    head = f'<div class="row"><h3>{escape(report.op)}</h3><span class="soft">{soft}</span></div>'
    return f'<div class="card">{head}{body}</div>'


def below(report: Bench) -> str:
    """How it was measured, what is to be said of it, and what to do next, in the accent colour."""
    how = "; ".join(part for part in (said.caption(report, MICRO), said.ceilings(report)) if part)
    next_ = " ".join(rich(each) for each in report.advice)
    advice = f' <span class="acc">Next: {typeset(next_)}</span>' if next_ else ""
    return f'<p class="cap">{typeset(escape(how))}.{advice}</p>{captions(report.notes)}'


def table(report: Bench) -> str:
    """Of a sweep a row a point, of cases a row a contestant."""
    return _points(report) if report.sweep else _cases(report)


def _cases(report: Bench) -> str:
    """All cases in one table, so that their columns line up, each under a head of its own."""
    slots = [r.slot for r in report.rows]
    parts = [_group(group, slots) for group in report.groups()[:MOST]]
    rest = "".join(parts[OPEN:])
    more = folded(words.count(len(parts) - OPEN, "more case"), f"<table>{rest}</table>") if rest else ""
    return f"<table>{''.join(parts[:OPEN])}</table>{more}"


def _group(group: Sequence[BenchRow], slots: Sequence[str]) -> str:
    own = said.own_of(group)
    head = (
        f'<tr class="top"><th>{escape(said.on(group[0], slots))}</th><th class=n>time</th><th class=n>ratio</th>'
        '<th class=n>of ceiling</th><th class="w"></th></tr>'
    )
    return f"{head}{''.join(_row(r, own) for r in group)}"


def _row(row: BenchRow, own: str) -> str:
    name = f'<span class="acc">{escape(row.contestant)}</span>' if row.own else escape(row.contestant)
    if not row.timed:
        kind = "soft" if row.status == "skip" else "bad"
        why = f'<span class="{kind}">{escape(row.status)}</span> {rich(row.detail)}'
        return f'<tr><td>{name}</td><td class="w" colspan="4">{why}</td></tr>'
    title = "; ".join(p for p in (said.rate(row), f"{said.memory(row)} allocated" if row.peak_mb > 0 else "") if p)
    return (
        f'<tr title="{escape(title)}"><td>{name}</td><td class="n">{said.time(row, MICRO)}</td>'
        f'<td class="n" title="95 %: {said.within(row)}">{said.ratio(row)}</td>'
        f'<td class="n soft">{escape(said.share(row).partition(" of ")[0])}</td>'
        f'<td class="w">{"<br>".join(p for p in (verdict(row, own), rich(row.detail)) if p)}</td></tr>'
    )


def verdict(row: BenchRow, own: str) -> str:
    """The verdict in its colour; of an unclear one the interval, which is why."""
    if not row.verdict:
        return ""
    shown = f'<span class="{said.CLASSES.get(row.verdict, "soft")}">{escape(said.verdict(row, own))}</span>'
    return f'{shown} <span class="faint">{said.within(row)}</span>' if row.verdict == "UNCLEAR" else shown


def _points(report: Bench) -> str:
    """A row for each point of a sweep: the op's time, and how the others stand to it."""
    others = [n for n in names(report.rows) if not any(r.own for r in report.rows if r.contestant == n)]
    places = _places(report)
    groups = report.groups()
    heads = "".join(f"<th>{escape(n)}</th>" for n in places)
    heads += '<th class="n">time</th><th class="n">rate</th><th class="n">of ceiling</th>'
    heads += "".join(f'<th class="n">{escape(n)}</th>' for n in others)
    rows = "".join(_point(group, places, others) for group in groups[:MOST])
    return f"<table><tr>{heads}</tr>{rows}</table>{_reasons(report)}"


def _places(report: Bench) -> list[str]:
    """What tells the points of a sweep apart: the names with several values, dtype and slot."""
    found = [n for n in report.sweep if n != "dtype" and len({dict(r.values).get(n) for r in report.rows}) > 1]
    return found + [n for n in ("dtype", "slot") if len({getattr(r, n) for r in report.rows}) > 1]


def _point(group: Sequence[BenchRow], places: Sequence[str], others: Sequence[str]) -> str:
    found = {r.contestant: r for r in group}
    at = dict(group[0].values)
    cells = "".join(f"<td>{escape(words.dtype(str(at.get(n, getattr(group[0], n, '')))))}</td>" for n in places)
    own = next((r for r in group if r.own), None)
    if own is None:
        return ""
    if not own.timed:
        why = f'<span class="bad">{escape(own.status)}</span> {rich(own.detail)}'
        return f'<tr>{cells}<td class="w" colspan="{len(others) + 3}">{why}</td></tr>'
    cells += f'<td class="n">{said.time(own, MICRO)}</td><td class="n soft">{escape(said.rate(own))}</td>'
    cells += f'<td class="n soft">{escape(said.share(own).partition(" of ")[0])}</td>'
    return f"<tr>{cells}{''.join(f'<td class=n>{_against(found.get(n))}</td>' for n in others)}</tr>"


def _against(row: BenchRow | None) -> str:
    """The ratio in the colour of its verdict; the verdict itself and the interval where the mouse rests."""
    if row is None:
        return ""
    if not row.timed:
        return f'<span class="bad">{escape(row.status)}</span>'
    kind = said.CLASSES.get(row.verdict, "soft")
    return f'<span class="{kind}" title="95 %: {said.within(row)}">{said.ratio(row)} {escape(row.verdict)}</span>'


def _reasons(report: Bench) -> str:
    told = {r.contestant: r.detail for r in report.rows if r.detail and not (r.own and not r.timed)}
    return captions([f"{name}: {detail}" for name, detail in told.items()])
