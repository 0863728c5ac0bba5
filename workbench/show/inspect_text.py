"""What a compiler made of a version, as text: the numbers, what is worth knowing, and which stages can be printed."""

from __future__ import annotations

from ..reports.inspection import Comparison, Finding, FunctionRow, Inspection, KernelRow
from . import inspect_words, text, words

FINDINGS = 24


def inspection(report: Inspection) -> str:
    """Numbers, findings, stages; the stages themselves are printed one by one.

    >>> print(inspection(report))
    lab::scale v2 forward cuda | raw CUDA, float32 | sm_90, NVRTC 13.0 | 0.26 s
      kernel  regs  spills  shared  block  occupancy  limited by
      scale   16    none    none    256    100 %      nothing
    """
    shown = [" | ".join(part for part in inspect_words.head(report) if part), *_rows(report)]
    shown += [text.indented(_finding(f)) for f in report.findings[:FINDINGS]]
    if len(report.findings) > FINDINGS:
        shown.append(f"  and {len(report.findings) - FINDINGS} more findings")
    shown += [text.indented(f"{s.name}: {inspect_words.counts(s)}") for s in report.stages if s.counts]
    shown.append(text.indented(inspect_words.stages(report)))
    return "\n".join([*shown, *(text.note(n) for n in inspect_words.notes(report))])


def _finding(finding: Finding) -> str:
    place = f"line {finding.line}: " if finding.line else ""
    return f"{place}{finding.text}"


def _rows(report: Inspection) -> list[str]:
    head, rows = inspect_words.table(report)
    return text.table(head, rows, right=range(1, len(head) - 1))


def comparison(report: Comparison) -> str:
    """Each number of both versions beside the other, then how many lines of each stage differ."""
    names = report.titles
    shown = [f"{report.left.op} {report.left.slot} | {' beside '.join(names)} | {report.left.how}"]
    shown += text.table(("", *names), inspect_words.compared(report), right=(1, 2))
    for name in report.names:
        same, only_left, only_right = inspect_words.tally(report, name)
        shown.append(f"  {name}: {words.count(same, 'line')} alike, {only_left} only in {names[0]}, "
                     f"{only_right} only in {names[1]}")  # fmt: skip
    return "\n".join(shown)


__all__ = ["FunctionRow", "KernelRow", "comparison", "inspection"]
