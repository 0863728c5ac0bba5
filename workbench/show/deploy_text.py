"""What a deployment is, as text."""

from __future__ import annotations

import shlex

from ..reports.deploying import Deployed, Ran


def deployed(report: Deployed) -> str:
    """`norm | cpu | model.pt2 in /home/me/norm | 24.1 s`, how each op runs, and what each run gave."""
    head = f"{report.name} | {report.device} | model.pt2 in {report.path} | {sum(report.seconds.values()):.1f} s"
    width = max((len(name) for name, _ in report.ops), default=0)
    ops = [f"  {name:{width}}  runs {how}" for name, how in report.ops]
    return "\n".join([head, *ops, *map(ran, report.runs), *report.notes, *how(report)])


def ran(row: Ran) -> str:
    """`  C++     example          1 output, equal to eager's to the last bit, 41 us a call`."""
    took = f", {row.microseconds:,.0f} us a call" if row.microseconds and not (row.skipped or row.problem) else ""
    return f"  {row.by:7} {row.on:16} {result(row)}{took}"


def result(row: Ran) -> str:
    """What came of a run, beside eager's."""
    if row.skipped:
        return f"not run: {row.skipped}"
    if row.problem:
        return f"FAILED: {row.problem}"
    outputs = f"{row.outputs} output{'s' * (row.outputs != 1)}"
    if row.equal == row.outputs:
        return f"{outputs}, equal to eager's to the last bit"
    return f"{outputs}, {row.equal} equal to eager's to the last bit, the rest within {row.worst:.2g}"


def how(report: Deployed) -> list[str]:
    """What to type next; of the program only where it was built."""
    script, program, folder = map(shlex.quote, (f"{report.path}/run.py", f"{report.path}/bin/run", report.path))
    skipped = [bool(run.skipped) for run in report.runs if run.by == "C++"]
    built = not skipped or not all(skipped)
    return [f"run it: python {script}" + (f", or {program} {folder} (no Python)" if built else "")]
