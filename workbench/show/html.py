"""Reports as static html: what a notebook shows without its kernel, and what a code host shows.

Every text of a user or a compiler goes through `escape` or `rich`. Nothing here needs a script, and a host that strips
the style still shows tables and words in the right order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from ..errors import Diagnostic
from ..reports.card import Card
from ..reports.deploying import Deployed
from ..reports.inspection import Comparison, Inspection
from ..reports.measurement import Bench
from ..reports.profiling import Profile
from ..reports.report import Check, Line, Mismatch, Outcome, Report, Row, Trial, Watched
from ..reports.tuning import Tuning
from . import gather, pattern, picture, text, words
from .markup import DOTS, MICRO, TIMES, captions, dot, folded, rich, typeset
from .style import sheet

TRIAL_ROWS, CHECK_ROWS = 60, 300
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # colours of a terminal, and worse


def of(report: Report) -> str:
    """The html of any report, with its stylesheets."""
    return page(body(report), "report", *sheets(report))


def body(report: Report, *, heading: bool = True) -> str:
    """The html of any report by itself. Without `heading` it is a pane of a card, which has named the op already."""
    from . import bench_html, card, deploy_html, inspect_html, profile_html, tune_html  # above: a card holds a check

    draw: dict[type, Callable[..., str]] = {
        Line: line, Trial: trial, Check: check, Card: card.card, Watched: watched,
        Inspection: inspect_html.inspection, Comparison: inspect_html.comparison,
        Profile: profile_html.profile, Tuning: tune_html.tuning, Bench: bench_html.bench,
        Deployed: deploy_html.deployed,
    }  # fmt: skip
    for kind in type(report).__mro__:
        if kind in draw:
            return draw[kind](report) if heading else draw[kind](report, heading=False)
    return f"<pre>{escape(str(report))}</pre>"


def sheets(report: Report) -> tuple[str, ...]:
    """The stylesheets that it needs beside `report`; a card those of its panes."""
    if isinstance(report, Card):
        panes = (p for p in (report.bench, report.profile, report.tuning) if p is not None)
        return tuple(dict.fromkeys(name for pane in panes for name in sheets(pane)))
    if isinstance(report, Profile):
        return ("profile",)
    return ("inspect",) if isinstance(report, (Inspection, Comparison)) else ()


def page(body: str, *sheets: str) -> str:
    """`body` under the class that the stylesheets are scoped to, after those that `sheets` names."""
    style = f"<style>{''.join(sheet(name) for name in sheets)}</style>" if sheets else ""
    return f'{style}<div class="wb">{CONTROL.sub("", body)}</div>'


def line(report: Line) -> str:
    """The cell's line; under a refusal the picture, elements and hint. Printed text is not part of it."""
    version = f"v{report.version}"
    title = f' title="{escape(report.title)}"' if report.title else ""
    head = [f"<b>{escape(words.target(report))}</b>", f'<span class="soft">{escape(words.how(report))}</span>']
    if report.installed:
        judged = _unrun(report) or _agreement(report.trial)
        parts = [words.run_time(report, MICRO), judged, *escape(report.resources).split(" | "), _rough(report)]
        head.append(f'<span class="acc"{title}>{version}</span>')
    else:
        still = f'{words.still(report)} <span class="acc">{escape(report.still)}</span>' if report.still else ""
        parts = [words.run_time(report, MICRO), _refusal(report) + still]
        head.append(f'<span class="bad"{title}>{version} not installed</span>')
    sep = '<span class="sep">| </span>'  # before its part, where the stylesheet hides it at the start of a row
    row = " ".join(
        [
            f'<span class="head">{" ".join(head)}</span>',
            *(f'<span class="part">{sep}{part}</span>' for part in parts if part),
        ]
    )
    notes = dict.fromkeys([*report.notes, *(report.trial.notes if report.trial else ())])
    below = ("" if report.installed else _why(report)) + captions([*notes, *([report.cost] if report.cost else [])])
    return f'<div class="line"><div class="row">{row}</div>{below}</div>'


def watched(report: Watched) -> str:
    """The newest line of each slot, an error that no line tells, and what is watched."""
    error = f'<p class="bad">{rich(report.error)}</p>'.replace("\n", "<br>") if report.error else ""
    said = f"{escape(report.state)} <code>{escape(report.path)}</code>"
    return f'{"".join(map(line, report.lines))}{error}{captions(report.notes)}<p class="cap">{said}</p>'


def _unrun(report: Line) -> str:
    return f'<span class="soft">{escape(report.unrun)}</span>' if report.unrun else ""


def _agreement(trial: Trial | None) -> str:
    if trial is None:
        return ""
    agreed, skipped = words.agreeing(trial), words.skipped(trial)
    if words.failing(trial) or not agreed:
        return f'<span class="{"bad" if words.failing(trial) else "soft"}">{escape(text.agreement(trial))}</span>'
    closest = trial.closest
    soft = "exactly"
    if closest and closest.share > 0:
        soft = f"({escape(words.case(closest))} {words.share(closest.share)} of allowed)"
    left = f", {skipped} skipped" if skipped else ""
    said = f'<span class="good">agrees</span> on {words.runs(agreed, TIMES)}'
    return f'{said} <span class="soft">{soft}{left}</span>'


def _rough(report: Line) -> str:
    if report.rough_us <= 0:
        return ""
    soft = [report.rough_case, words.former(report, MICRO), "rough"]
    told = escape(", ".join(part for part in soft if part))
    return f'{words.duration(report.rough_us * 1e-6, 2, MICRO)} <span class="soft">{told}</span>'


def _refusal(report: Line) -> str:
    """The sentence, with the name of the failing case set off."""
    said = rich(words.refusal(report))
    failed = words.failing(report.trial)
    if failed and failed[0].case:
        name = escape(failed[0].case)
        said = re.sub(rf"\bon {re.escape(name)}(?![\w-])", lambda _: f"on <b>{name}</b>", said, count=1)
    return said


def _why(report: Line) -> str:
    """What stands under a refusal: the picture on the left, elements, other failures and the hint on the right."""
    mismatch = words.mismatch(report.trial)
    hint = "<br>".join(rich(part) for part in report.hint.splitlines() if part.strip())
    others = "".join(_outcome(o) for o in words.failing(report.trial)[1:TRIAL_ROWS])
    said = folded(words.also(report), f"<table>{others}</table>") if others else ""
    said += f'<p class="cap">{hint}</p>' if hint else ""
    if not mismatch:
        return _diagnostics(report) + said
    left = picture.error_map(mismatch) + f'<p class="cap">{_caption(mismatch, words.refusal(report))}</p>'
    return f'<div class="two"><div class="fixed">{left}</div><div>{_worst(mismatch)}{said}</div></div>'


def _caption(mismatch: Mismatch, known: str) -> str:
    said = escape(pattern.caption(mismatch, TIMES, known))
    if mismatch.wrong and pattern.folded(mismatch):
        cells = words.size((len(mismatch.wrong), len(mismatch.wrong[0])), TIMES)
        said += f'<span class="faint">; drawn as {cells} cells</span>'
    borders = pattern.find(mismatch)
    period, noun = (borders.columns, "columns") if borders.columns else (borders.rows, "rows")
    if not period:
        period, noun = picture.declared(mismatch), "columns, a block"
    return said + (f'<span class="faint">; dashes every {period} {noun}</span>' if period else "")


def _worst(mismatch: Mismatch) -> str:
    rows = []
    inputs = mismatch.inputs or ("",) * len(mismatch.worst)
    for (index, got, wanted), met in zip(mismatch.worst, inputs, strict=True):
        one, other = (value.replace("-", "−") for value in words.values(got, wanted))
        cells = f'<td class="mono">{list(index)}</td><td class="n mono bad">{one}</td><td class="n mono">{other}</td>'
        cells += f'<td class="mono soft w">{escape(met)}</td>' if mismatch.inputs else ""
        rows.append(f"<tr>{cells}</tr>")
    head = '<tr><th>at</th><th class="n">got</th><th class="n">wanted</th>'
    head += "<th>from</th></tr>" if mismatch.inputs else "</tr>"
    return f'<table class="fit">{head}{"".join(rows)}</table>' if rows else ""


def _diagnostics(report: Line) -> str:
    """The line of the first diagnostic, and the other messages folded away."""
    found = words.diagnostics(report)
    if not found:
        return ""
    rest = [
        f'<p class="cap">{f"line {d.line}: " if d.line else ""}{escape(d.severity)}: {rich(d.message)}</p>{_excerpt(d)}'
        for d in found[1:40]
    ]
    return _excerpt(found[0]) + (folded(words.count(len(rest), "more message"), "".join(rest)) if rest else "")


def _excerpt(diagnostic: Diagnostic) -> str:
    shown = "\n".join(part.removeprefix("    ") for part in text.excerpt(diagnostic))
    return f"<pre>{escape(shown)}</pre>" if shown else ""


def _printed(trial: Trial) -> str:
    if not trial.printed.strip():
        return ""
    return f'<p class="cap">printed</p><pre class="said">{escape(words.clip(trial.printed, 200, 20_000))}</pre>'


def trial(report: Trial) -> str:
    """Counts, then a row for each outcome, failing ones first; what was printed below."""
    failed, agreed = words.failing(report), words.agreeing(report)
    said = [f"{len(agreed)} of {len(agreed) + len(failed)} {words.agree(agreed)}"]
    said += [f"{words.skipped(report)} skipped"] if words.skipped(report) else []
    said += [words.duration(report.seconds, 2, MICRO)] if report.seconds > 0 else []
    order = failed + [o for o in report.outcomes if o not in failed]
    rows = "".join(_outcome(o) for o in order[:TRIAL_ROWS])
    more = f'<p class="cap">and {len(order) - TRIAL_ROWS} more</p>' if len(order) > TRIAL_ROWS else ""
    head = '<tr><th>case</th><th>dtype</th><th>outcome</th><th class="n">of allowed</th><th></th></tr>'
    table = f"<table>{head}{rows}</table>" if rows else ""
    body = f'<div class="row"><span>{", ".join(said)}</span></div>{table}{more}'
    return f'<div class="line">{body}{captions(report.notes)}{_printed(report)}</div>'


def _outcome(outcome: Outcome) -> str:
    bad = outcome.status not in DOTS
    said = escape(words.verdict(outcome))
    shown = words.share(outcome.share) if outcome.share > 0 else "exact" if outcome.status == "agree" else ""
    return (
        f"<tr><td>{dot('fail' if bad else outcome.status)}{escape(outcome.case)}</td>"
        f'<td class="soft">{escape(words.dtype(outcome.dtype))}</td><td class="{"bad" if bad else "soft"}">{said}</td>'
        f'<td class="n">{shown}</td><td class="w">{rich(words.found(outcome))}</td></tr>'
    )


def check(report: Check, heading: bool = True) -> str:
    """A row for each check; `heading` names the op above them, which a card has done already."""
    rows = gather.arranged(report)[:CHECK_ROWS]
    said = ", ".join(words.tally(report)) + f"; {escape(report.level)} check"
    said += f", {words.duration(report.seconds, 2, MICRO)}" if report.seconds > 0 else ""
    passed = [r for r in rows if r.status == "pass"]
    if report.level == "full" and 0 < len(passed) < len(rows) and not report.ok:  # what failed is what is to be read
        failed, skipped = ([r for r in rows if r.status == s] for s in ("fail", "skip"))
        kinds = words.count(len({r.check for r in passed}), "check")
        table = _table(failed) + folded(f"{kinds} passed", _table(passed)) + _table(skipped, names=False)
    else:
        table = _table(rows)
    tally = f'<p class="cap">{said}</p>'
    if not heading:
        return f"{_caution(report.was)}{table}{tally}"
    name = f"<h3>{escape(report.op)}</h3>"
    if report.level == "full":  # many rows: how it went is read first
        return f'<div class="card"><div class="row">{name}<span class="soft">{said}</span></div>{table}</div>'
    return f'<div class="card"><div class="row">{name}</div>{table}{tally}</div>'


def _caution(said: str) -> str:
    return f'<p class="cap"><span class="warn">{rich(said)}</span></p>' if said else ""


def _table(rows: Sequence[Row], names: bool = True) -> str:
    head = "<tr><th>what</th><th>on</th><th></th></tr>" if names else ""
    return f"<table>{head}{''.join(map(_check_row, rows))}</table>" if rows else ""


def _check_row(row: Row) -> str:
    stop = "." if row.cure and row.detail[-1:] not in ".?!" else ""
    name, detail = escape(row.check), typeset(rich(row.detail + stop))
    case = row.case or ("not run" if row.status == "skip" else "")
    if row.status == "fail":
        name, detail = f"<b>{name}</b>", f'<span class="bad">{detail}</span>'
    cells = (
        f'<td>{dot(row.status)}{name}</td><td class="soft{" m" if len(case) > 32 else ""}">{typeset(escape(case))}</td>'
    )
    drawn = f'<tr><td colspan="3">{_drawn(row.mismatch)}</td></tr>' if row.mismatch else ""
    return f'<tr>{cells}<td class="w">{detail} {rich(row.cure)}</td></tr>{drawn}'


def _drawn(mismatch: Mismatch) -> str:
    """Under a failed row: the map of its errors, how large they are, and the worst elements."""
    left = f'{picture.error_map(mismatch)}<p class="cap">{_caption(mismatch, "")}</p>'
    bars = picture.histogram(mismatch)
    said = f'<p class="cap">relative errors, by powers of ten</p>{bars}' if bars else ""
    return f'<div class="two"><div class="fixed">{left}</div><div>{_worst(mismatch)}{said}</div></div>'
