"""Reports as text for a terminal: aligned, at most about 100 columns, ASCII apart from what users wrote."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ..errors import Diagnostic
from ..reports.card import Card, HistoryRow, SlotRow
from ..reports.report import Check, Line, Mismatch, Row, Trial, Watched
from . import gather, ledger, pattern, words

WIDTH = 100
PANE_LINES = 16
TRIAL_ROWS = 40


def line(report: Line) -> str:
    """The one line under a cell, and what belongs below it. What the kernel printed is not part of it.

    >>> print(line(report))
    rmsnorm cuda v7 | 52 ms | 6 cases x 3 dtypes agree, closest: odd bf16 at 0.6 of allowed | 38 regs, no spills
    """
    head = f"{words.target(report)} {words.how(report)} v{report.version}"
    if not report.installed:
        still = f"{words.still(report)} {report.still}" if report.still else ""
        parts = [f"{head} not installed", words.run_time(report), words.refusal(report) + still]
    else:
        parts = [head, words.run_time(report), report.unrun or agreement(report.trial), report.resources, rough(report)]
    below = [] if report.installed else _why(report)
    notes = [*report.notes, *(report.trial.notes if report.trial else ())]
    below += [note(each) for each in dict.fromkeys([*notes, *([report.cost] if report.cost else [])])]
    return "\n".join([" | ".join(p for p in parts if p), *below])


def agreement(trial: Trial | None) -> str:
    """What the trial proved, in a phrase; "" when there was no trial."""
    if trial is None:
        return ""
    agreed, failed, skipped = words.agreeing(trial), words.failing(trial), words.skipped(trial)
    if failed:  # installed all the same
        does = "does" if len(failed) == 1 else "do"
        return f"forced: {len(failed)} of {words.count(len(trial.outcomes), 'run')} {does} not agree"
    if not agreed:
        return "compared with nothing" + (f", {words.count(skipped, 'case')} skipped" if skipped else "")
    said = f"{words.runs(agreed)} {words.agree(agreed)}"
    closest = trial.closest
    if closest and closest.share > 0:
        said += f", closest: {words.case(closest)} at {words.share(closest.share)} of allowed"
    else:
        said += " exactly"
    return said + (f", {skipped} skipped" if skipped else "")


def rough(report: Line) -> str:
    """The time, `41 us on llama, v6 47 (rough)`; "" when nothing was timed."""
    if report.rough_us <= 0:
        return ""
    on = f" on {report.rough_case}" if report.rough_case else ""
    former = words.former(report)
    return words.duration(report.rough_us * 1e-6) + on + (f", {former}" if former else "") + " (rough)"


def _why(report: Line) -> list[str]:
    """What stands under a refusal: diagnostics or the worst elements, then the hint."""
    found = []
    diagnostics = words.diagnostics(report)
    for nth, diagnostic in enumerate(diagnostics[:6]):
        if nth:
            place = f"line {diagnostic.line}: " if diagnostic.line else ""
            found.append(indented(f"{place}{diagnostic.severity}: {diagnostic.message}"))
        found += excerpt(diagnostic)
    if len(diagnostics) > 6:
        found.append(f"  and {words.count(len(diagnostics) - 6, 'more message')}")
    mismatch = words.mismatch(report.trial)
    if mismatch:
        found += [indented(pattern.caption(mismatch, known=words.refusal(report))), *worst(mismatch)]
    if words.also(report):
        found.append(f"  {words.also(report)}")
    return found + [indented(part) for part in report.hint.splitlines() if part.strip()]


def excerpt(diagnostic: Diagnostic) -> list[str]:
    """The user's line, with a caret under the column that the compiler named."""
    if not diagnostic.excerpt.strip():
        return []
    typed = diagnostic.excerpt.expandtabs(1).rstrip()
    cut = len(typed) - len(typed.lstrip())
    caret = diagnostic.column - 1 - cut
    shown = [f"    {typed.strip()}"]
    return [*shown, f"    {' ' * caret}^"] if 0 <= caret < len(typed) else shown


def worst(mismatch: Mismatch) -> list[str]:
    """The worst elements as a table of index, got and wanted, and what of the inputs met there."""
    inputs = mismatch.inputs or ("",) * len(mismatch.worst)
    rows = [
        (str(list(index)), *words.values(got, wanted), met)
        for (index, got, wanted), met in zip(mismatch.worst, inputs, strict=True)
    ]
    return table(("at", "got", "wanted", "from"), rows, right=(1, 2), indent="    ") if rows else []


def trial(report: Trial) -> str:
    """Counts on the first line, then one row for each outcome."""
    failed, agreed, skipped = words.failing(report), words.agreeing(report), words.skipped(report)
    parts = [f"{len(agreed)} of {len(agreed) + len(failed)} {'agrees' if len(agreed) == 1 else 'agree'}"]
    if skipped:
        parts.append(f"{skipped} skipped")
    if report.seconds > 0:
        parts.append(words.duration(report.seconds))
    order = failed + [o for o in report.outcomes if o not in failed]
    rows = [
        (
            o.case,
            words.dtype(o.dtype),
            words.verdict(o),
            words.share(o.share) if o.share > 0 else ("exact" if o.status == "agree" else ""),
            words.found(o),
        )
        for o in order[:TRIAL_ROWS]
    ]
    shown = [" | ".join(parts), *table(("case", "dtype", "outcome", "of allowed", ""), rows, right=(3,))]
    if len(order) > TRIAL_ROWS:
        shown.append(f"  and {len(order) - TRIAL_ROWS} more")
    shown += [note(each) for each in report.notes]
    if report.printed.strip():
        shown += ["  printed:", textwrap.indent(words.clip(report.printed), "  | ", lambda _: True)]
    return "\n".join(shown)


def check(report: Check) -> str:
    """A row for each check: how it went, what was checked, on what, and what that proved; the cure below a failure."""
    head = [f"{report.op} {report.level} check", ", ".join(words.tally(report))]
    if report.seconds > 0:
        head.append(words.duration(report.seconds))
    head += [report.was] if report.was else []
    rows = gather.arranged(report)
    names = min(max((len(r.check) for r in rows), default=0), 28)
    if report.level == "full":
        return "\n".join([" | ".join(head), *(part for r in rows for part in _full_row(r, names))])
    cases = min(max((len(r.case) for r in rows), default=0), 28)
    return "\n".join([" | ".join(head), *(part for r in rows for part in _check_row(r, names, cases))])


def _full_row(row: Row, names: int) -> list[str]:
    """A row of many: its inputs on the first line, what they showed below it."""
    start, margin = f"  {'FAIL' if row.status == 'fail' else row.status:4}  {row.check:{names}}  ", 8
    on = textwrap.wrap(row.case, max(WIDTH - len(start), 40)) or [""]
    first = [(start + on[0]).rstrip(), *(" " * len(start) + more for more in on[1:])]
    return [*first, *_wrapped(row.detail, margin), *_wrapped(row.cure, margin), *_drawn(row.mismatch)]


def _check_row(row: Row, names: int, cases: int) -> list[str]:
    start = f"  {'FAIL' if row.status == 'fail' else row.status:4}  {row.check:{names}}  {row.case:{cases}}"
    margin = 2 + 4 + 2 + names + 2 + cases + 2
    if len(start) + 2 > margin:  # a long name takes a line of its own
        first, detail = [start.rstrip()], _wrapped(row.detail, margin)
    else:
        detail = _wrapped(row.detail, margin)
        first = [f"{start}  {detail[0].strip() if detail else ''}".rstrip()]
        detail = detail[1:]
    return [*first, *detail, *_wrapped(row.cure, margin), *_drawn(row.mismatch)]


def _drawn(mismatch: Mismatch | None) -> list[str]:
    """Under a failed row: where its values differ, by how much, and the worst elements with what went into them."""
    if mismatch is None:
        return []
    shown = [indented(f"  {pattern.caption(mismatch)}")]
    if mismatch.histogram:
        counts = "; ".join(f"{words.power(p)}: {n:,}" for p, n in mismatch.histogram)
        shown.append(indented(f"  relative errors, from 0 up by powers of ten: {counts}"))
    return [*shown, *worst(mismatch)]


def card(report: Card) -> str:
    """Name and signature, a row for each slot, the last reports, the newest versions, notes."""
    shown = [
        report.name + report.signature if report.signature.startswith("(") else f"{report.name} {report.signature}"
    ]
    if report.doc.strip():
        shown.append(indented(report.doc.strip().splitlines()[0]))
    shown += ["", *_slots(report.slots), *(indented(cost) for cost in words.costs(report))]
    if report.check:
        shown += ["", check(report.check)]
    for pane in (report.bench, report.profile, report.tuning):
        shown += ["", words.clip(str(pane), PANE_LINES)] if pane is not None else []
    if report.history:
        shown += ["", *_history(report.history)]
    return "\n".join([*shown, *(note(each) for each in report.notes)])


def watched(report: Watched) -> str:
    """The newest line of each slot, an error that no line tells, and what is watched."""
    shown = [line(each) for each in report.lines]
    shown += [report.error] if report.error else []
    return "\n".join([*shown, *(note(each) for each in report.notes), f"{report.state} {report.path}"])


def _slots(slots: Sequence[SlotRow]) -> list[str]:
    time, ceiling = words.measured(slots)
    rows = [
        (
            s.slot,
            f"{s.runs} {s.how}".strip(),
            s.agrees if s.ok or not s.agrees else f"{s.agrees} FAIL",
            words.slot_time(s, time),
            " ".join(words.slot_share(s, ceiling)).strip(),
            s.resources,
        )
        for s in slots
    ]
    return table(("slot", "runs", "agrees", time, ceiling, "resources"), rows, right=(3, 4))


def _history(history: Sequence[HistoryRow]) -> list[str]:
    heads = ("version", "slot", "status", "time", "against", "built in", "takes", "agrees", "title")
    shown = table(heads, ledger.text(history), right=(3, 5))
    older = len(history) - ledger.TEXT_ROWS
    return shown + ([f"  and {words.count(older, 'older version')}"] if older > 0 else [])


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: str = "  "
) -> list[str]:
    """Aligned columns under their heads; a column that is empty in every row is left out."""
    rows = [tuple(" ".join(str(cell).split()) for cell in row) for row in rows]
    used = [i for i in range(len(head)) if any(row[i] for row in rows)]
    widths = {i: max(len(head[i]), *(len(row[i]) for row in rows)) for i in used}

    def put(cells: Sequence[str]) -> str:
        aligned = (cells[i].rjust(widths[i]) if i in right else cells[i].ljust(widths[i]) for i in used)
        return (indent + "  ".join(aligned)).rstrip()

    return [put(head), *(put(row) for row in rows)] if rows else []


def _wrapped(text: str, margin: int) -> list[str]:
    pad = " " * margin
    width = max(WIDTH, margin + 40)
    return textwrap.wrap(text, width, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False)


def note(said: str) -> str:
    """A note; the lines after its first, as of a warning with the code it is about, stay lines."""
    return "\n".join(indented(part) for part in f"note: {said}".splitlines())


def indented(text: str) -> str:
    """A sentence under a line: two columns in, at most about 100 wide."""
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
