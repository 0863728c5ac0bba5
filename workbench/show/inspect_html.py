"""What a compiler made of a version, as static html: source on the left, stages on the right, no script.

Each source line is a radio button; the stylesheet made here shows what came from the chosen one. Where styles are
stripped, numbers, source and stages still stand one below the other. Text of compilers and users is escaped.
"""

from __future__ import annotations

import secrets
from collections import Counter
from html import escape

from ..reports.inspection import Comparison, Entry, Finding, Inspection, Stage, numbered
from . import code, inspect_words
from .markup import captions, folded, rich

SHOWN_LINES, SHOWN_DIFF, ALIKE = 4000, 2000, 6
FINDINGS = 8
CONTEXT = (
    '<label class="ctx" title="all of the stage, with what became of the chosen line set off">'
    '<input type="checkbox" class="context"><span>in context</span></label>'
)


def inspection(report: Inspection) -> str:
    """Numbers and findings; below them source and stages side by side."""
    group = f"wb-{secrets.token_hex(4)}"
    lines = sorted({n for s in report.stages for n in s.lines})
    return (
        f"<style>{rules(group, lines)}</style>"
        f'<div class="card inspect" id="{group}">{head(report)}{findings(report)}'
        f'<div class="panes">{source(report, group)}<div class="right">{CONTEXT}{stages(report, group)}</div>'
        "</div></div>"
    )


def rules(group: str, lines: list[int]) -> str:
    """What shows when a line is chosen. Lines are numbers: nothing of a user's text is in here."""
    if not lines:
        return ""
    chosen = [(n, f"#{group}:has(#{group}-{n}:checked)") for n in lines]
    hidden = ",".join(f"{c}:not(:has(.context:checked)) .i:not(.l{n})" for n, c in chosen)
    marked = ",".join(f"{c} .s{n},{c}:has(.context:checked) .l{n}" for n, c in chosen)
    return f"{hidden}{{display:none}}{marked}{{--mark:var(--chosen);--edge:var(--accent)}}"


def head(report: Inspection) -> str:
    """Which version, made by what, and its numbers."""
    what, how, by, seconds = inspect_words.head(report)
    soft = " &nbsp; ".join(escape(part) for part in (how, by, seconds) if part)
    return f'<div class="row"><h3>{escape(what)}</h3><span class="soft">{soft}</span></div>{table(report)}'


def table(report: Inspection) -> str:
    """The numbers of each kernel or function."""
    names, rows = inspect_words.table(report)
    if not rows:
        return ""
    last = len(names) - 1
    heads = "".join(f'<th class="{_side(i, last)}">{escape(n)}</th>' for i, n in enumerate(names))
    cells = "".join(
        "<tr>" + "".join(f'<td class="{_side(i, last)}">{escape(c)}</td>' for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{heads}</tr>{cells}</table>"


def _side(place: int, last: int) -> str:
    return "n" if 0 < place < last else "w" if place == last else ""


def findings(report: Inspection) -> str:
    """What is worth knowing, the first eight in sight, then notes."""
    said = [f'<p class="cap">{_finding(f)}</p>' for f in report.findings]
    rest = folded(f"{len(said) - FINDINGS} more", "".join(said[FINDINGS:])) if len(said) > FINDINGS else ""
    return f"{''.join(said[:FINDINGS])}{rest}{captions(inspect_words.notes(report))}"


def _finding(found: Finding) -> str:
    place = f"<b>line {found.line}</b> " if found.line else ""
    return place + (f'<span class="bad">{rich(found.text)}</span>' if found.bad else rich(found.text))


def source(report: Inspection, group: str) -> str:
    """The cell, each line with the number of instructions that came from it, and a button inside."""
    counted = Counter(e.line for e in report.stages[-1].entries if e.line) if report.stages else Counter()
    reached = {n for s in report.stages for n in s.lines}
    language = report.source.language
    coloured = code.lines(report.source.text.rstrip("\n"), "python" if language == "triton" else language)
    rows = []
    for (n, _), shown in zip(numbered(report.source), coloured, strict=False):
        count = f'<span class="count">{counted[n] or ""}</span>'
        text = f'<span class="no">{n}</span>{count}<span class="t">{shown or " "}</span>'
        button = f'<input type="radio" name="{group}" id="{group}-{n}">' if n in reached else ""
        rows.append(f'<label class="s s{n}">{button}{text}</label>' if button else f'<span class="s">{text}</span>')
    everything = f'<input type="radio" name="{group}" id="{group}-all" checked>'
    caption = f'<div class="strip"><label class="all">{everything}<span>all lines</span></label></div>'
    return f'<div class="left">{caption}<pre class="src"><code>{_joined(rows)}</code></pre></div>'


def stages(report: Inspection, group: str) -> str:
    """The stages as tabs that need no script, the last one opened."""
    last = report.stages[-1].name if report.stages else ""
    tabs = "".join(
        f'<details name="{group}-stage"{" open" if s.name == last else ""}><summary>{escape(s.name)}</summary>'
        f"{stage(s, group)}</details>"
        for s in report.stages
    )
    return f'<div class="tabs">{tabs}</div>'


def stage(found: Stage, group: str = "", marked: int = 0) -> str:
    """One stage: what its instructions do, then its lines with their source lines in the margin.

    `group` names the buttons that the margin belongs to, `marked` is a source line to set off.
    """
    counts = f'<p class="cap">{escape(inspect_words.counts(found))}</p>' if found.counts else ""
    rows = [_entry(e, group, marked) for e in found.entries[:SHOWN_LINES]]
    left_out = len(found.entries) - SHOWN_LINES
    cut = f"<code>print(report.stage({escape(found.name)!r}))</code> shows them" if left_out > 0 else ""
    more = f'<p class="cap">{left_out:,} more lines: {cut}</p>' if left_out > 0 else ""
    empty = "" if rows else '<p class="cap">nothing was said</p>'
    return f'{counts}{empty}<pre class="stage"><code>{_joined(rows)}</code></pre>{more}' if rows else f"{counts}{empty}"


def _entry(entry: Entry, group: str, marked: int) -> str:
    kind = "spill" if inspect_words.is_spill(entry.text) else "" if entry.line else "soft"
    lines = [f"l{n}" for n in dict.fromkeys((entry.line, *entry.callers)) if n]
    classes = " ".join(part for part in ("i", kind, "on" if entry.of(marked) else "", *lines) if part)
    number = str(entry.line or "")
    gutter = f'<label class="no" for="{group}-{entry.line}">{number}</label>' if entry.line and group else ""
    gutter = gutter or f'<span class="no">{number}</span>'
    return f'<span class="{classes}">{gutter}<span class="t">{escape(entry.text) or " "}</span></span>'


def _joined(rows: list[str]) -> str:
    return "\n".join(rows)


def comparison(report: Comparison) -> str:
    """The numbers of both, then each stage as two columns with what is alike folded away."""
    group = f"wb-{secrets.token_hex(4)}"
    last = report.names[-1] if report.names else ""
    tabs = "".join(
        f'<details name="{group}"{" open" if n == last else ""}><summary>{escape(n)}</summary>'
        f"{diff(report, n)}</details>"
        for n in report.names
    )
    return f'<div class="card inspect">{numbers(report)}<div class="tabs">{tabs}</div></div>'


def numbers(report: Comparison) -> str:
    """Each number of both versions, those that differ set off."""
    what = f"{report.left.op} {report.left.slot}: {' beside '.join(report.titles)}"
    rows = "".join(
        f"<tr><td>{escape(label)}</td>{_number(a, a != b)}{_number(b, a != b)}<td class=w></td></tr>"
        for label, a, b in inspect_words.compared(report)
    )
    heads = "".join(f'<th class="n">{escape(n)}</th>' for n in report.titles)
    head = f'<div class="row"><h3>{escape(what)}</h3><span class="soft">{escape(report.left.how)}</span></div>'
    return f"{head}<table><tr><th></th>{heads}<th></th></tr>{rows}</table>"


def _number(value: str, changed: bool) -> str:
    return f'<td class="n{" acc" if changed else ""}">{escape(value)}</td>'


def diff(report: Comparison, name: str) -> str:
    """One stage of both versions side by side: changed lines tinted, long runs of equal ones left out."""
    left, right = report.stage(name)
    rows: list[str] = []
    for kind, a, b, c, d in inspect_words.opcodes(left, right):
        if kind == "equal":
            rows += _alike(left.entries[a:b], right.entries[c:d])
            continue
        size = max(b - a, d - c)
        mine = [*left.entries[a:b], *[None] * (size - (b - a))]
        theirs = [*right.entries[c:d], *[None] * (size - (d - c))]
        rows += [_pair(x, y, changed=True) for x, y in zip(mine, theirs, strict=True)]
    cut = len(rows) - SHOWN_DIFF
    more = f'<p class="cap">{cut:,} more lines are not shown</p>' if cut > 0 else ""
    alike, mine_only, theirs_only = inspect_words.tally(report, name)
    said = f"{alike:,} lines alike but for registers and labels, {mine_only:,} only in {report.titles[0]}, "
    said += f"{theirs_only:,} only in {report.titles[1]}"
    heads = "".join(f'<th></th><th class="mono">{escape(n)}</th>' for n in report.titles)
    shown = f'<div class="diff"><table><tr>{heads}</tr>{"".join(rows[:SHOWN_DIFF])}</table></div>'
    return f'<p class="cap">{escape(said)}</p>{shown}{more}'


def _alike(mine: tuple[Entry, ...], theirs: tuple[Entry, ...]) -> list[str]:
    pairs = [_pair(x, y) for x, y in zip(mine, theirs, strict=True)]
    if len(pairs) <= 2 * ALIKE:
        return pairs
    between = f'<tr class="cut"><td></td><td colspan="3">{len(pairs) - 2 * ALIKE:,} lines alike</td></tr>'
    return [*pairs[:ALIKE], between, *pairs[-ALIKE:]]


def _pair(mine: Entry | None, theirs: Entry | None, *, changed: bool = False) -> str:
    cells = "".join(_cell(e, changed) for e in (mine, theirs))
    return f"<tr>{cells}</tr>"


def _cell(entry: Entry | None, changed: bool) -> str:
    if entry is None:
        return '<td class="no"></td><td class="gone"></td>'
    kind = ' class="new mono"' if changed else ' class="mono"'
    return f'<td class="no">{entry.line or ""}</td><td{kind}>{escape(entry.text)}</td>'
