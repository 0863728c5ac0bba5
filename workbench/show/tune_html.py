"""A tuning as static html: the best configuration, a table with the fastest on top, the line to paste."""

from __future__ import annotations

from html import escape

from ..reports.tuning import NOT_REACHED, Tuning
from . import tune_words as said
from .markup import MICRO, TIMES, captions, folded

ROWS, ALL = 12, 400


def tuning(report: Tuning, heading: bool = True) -> str:
    """Head, verdict, one table a case, the line to paste, notes."""
    what, *rest = said.head(report)
    soft = " &nbsp; ".join(escape(part) for part in rest if part)
    head = f'<div class="row"><h3>{escape(what)}</h3></div><p class="cap">{soft}</p>' if heading else ""
    found = said.verdict(report, MICRO).replace(" x as", f" {TIMES} as")
    kind = "acc" if report.best is not None else "bad" if not _is_unrun(report) else "soft"
    tables = "".join(table(report, case) for case in report.cases)
    line = f"<pre><code>{escape(report.line)}</code></pre>" if report.line else ""
    counts = f'<p class="cap">{escape(said.counts(report))}</p>'
    body = f'{head}<p class="gap"><b class="{kind}">{escape(found)}</b></p>{counts}{line}{tables}'
    body += captions(said.notes(report))
    return f'<div class="card">{body}</div>' if heading else body


def _is_unrun(report: Tuning) -> bool:
    return any(r.status == "not run" for r in report.rows)


def table(report: Tuning, case: str) -> str:
    """The rows of a case; those beyond the first dozen behind a title."""
    heads, rows = said.table(report, case, MICRO)
    if not rows:
        return ""
    order = said.ordered(report, case)
    best = {k: r for (c, k), r in report.winners.items() if c == case}
    used = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    used = [i for i in used if heads[i] != "of best"]
    last = len(heads) - 1
    made: list[str] = []
    unreached: list[str] = []
    for row, known in zip(rows, order, strict=True):
        winner = best.get(known.kernel) is known
        cells = []
        for i in used:
            kind = "w" if i == last else "n"
            if i == 0 and not known.ok:
                kind = "n faint"
            cells.append(f'<td class="{kind}{" acc" if winner and i != last else ""}">{escape(row[i])}</td>')
        share = best[known.kernel].time_us / known.time_us if known.ok else 0.0
        shown = f"<tr>{cells[0]}<td>{_bar(share, row[1])}</td>{''.join(cells[1:])}</tr>"
        (unreached if known.status == NOT_REACHED else made).append(shown)
    named = [f'<th class="{"w" if i == last else "n"}">{escape(heads[i])}</th>' for i in used]
    top = f"<tr>{named[0]}<th>of best</th>{''.join(named[1:])}</tr>"
    title = f'<p class="cap gap">{escape(case)}</p>' if len(report.cases) > 1 else ""
    table = f"{title}<table>{top}{''.join(made[:ROWS])}</table>"
    for what, rest in (("more", made[ROWS:ALL]), ("not reached", unreached[:ALL])):
        table += folded(f"{len(rest)} {what}", f"<table>{top}{''.join(rest)}</table>") if rest else ""
    return table


def _bar(share: float, times: str) -> str:
    """How fast it is beside the best: a full bar is as fast."""
    if not share:
        return ""
    width = max(2, min(92, round(92 * share)))
    label = escape(times.replace(" x", f" {TIMES}"))
    bar = f'<span class="bar" style="width:{width}px"></span>'
    return f'<span class="track">{bar}</span><span class="soft">{label}</span>'
