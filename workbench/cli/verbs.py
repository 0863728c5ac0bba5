"""Commands that do with ops of files what one does with ops of cells."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import WorkbenchError
from ..op import Op
from ..reports.report import Line, Report
from .outcome import Outcome, of_reports


def doctor(given: argparse.Namespace) -> Outcome:
    """`workbench doctor`: a row for each thing that is looked at, with a fix."""
    from ..diagnose import doctor as look

    return of_reports([look(given.only)])


def load(given: argparse.Namespace) -> Outcome:
    """`workbench load PATH ...`: the line of each cell, and what runs then."""
    from ..commands import ops_table

    ops, lines = loaded(given.paths, tell=not given.json)
    table = ops_table({op.qualname: op for op in ops})
    data = {"ops": [_what_runs(op) for op in ops], "lines": [line.to_dict() for line in lines]}
    return Outcome(all(line.ok for line in lines), table, data)


def check(given: argparse.Namespace) -> Outcome:
    """`workbench check PATH ...`: agreement with the reference, torch's opcheck, gradients, compiled against eager."""
    return each(given, lambda op: op.check(given.level, sanitize=given.sanitize))


def bench(given: argparse.Namespace) -> Outcome:
    """`workbench bench PATH ...`: the op against its reference, with a verdict."""
    options: dict[str, Any] = {"cases": given.case} if given.case else {}
    if given.budget is not None:
        options["budget"] = given.budget
    return each(given, lambda op: op.bench(**options))


def profile(given: argparse.Namespace) -> Outcome:
    """`workbench profile PATH ...`: kernels, ops, memory and advice; a trace and a page where they are asked for."""
    ops, _ = loaded(given.paths, tell=not given.json)
    if len(ops) > 1 and (given.trace or given.html):
        raise WorkbenchError(f"--trace and --html are for one op, and {len(ops)} were loaded: {_names(ops)}")

    def look(op: Op) -> Report:
        report = op.profile(given.case)
        if given.trace:
            report.export_chrome_trace(given.trace)
        if given.html:
            written(given.html, report)
        return report

    return of_ops(ops, look)


def inspect(given: argparse.Namespace) -> Outcome:
    """`workbench inspect PATH ...`: registers, occupancy, or the text of one stage; 1 where registers spill."""
    ops, _ = loaded(given.paths, tell=not given.json)
    if len(ops) > 1 and given.html:
        raise WorkbenchError(f"--html is for one op, and {len(ops)} were loaded: {_names(ops)}")
    stages: list[str] = []

    def look(op: Op) -> Report:
        report: Any = op.inspect(dtype=given.dtype, slot=given.slot)
        if given.stage:
            stages.append(str(report.stage(given.stage)))
        if given.html:
            written(given.html, report)
        return report

    found = of_ops(ops, look)
    return replace(found, text="\n\n".join(stages)) if given.stage else found


def tune(given: argparse.Namespace) -> Outcome:
    """`workbench tune PATH ...`: what was found, and the lines that make it the default."""
    options: dict[str, Any] = {} if given.budget is None else {"budget": given.budget}
    return each(given, lambda op: op.tune(given.case, slot=given.slot, **options))


def save(given: argparse.Namespace) -> Outcome:
    """`workbench save PATH ... --to FOLDER`: the ops as one package."""
    from ..saving import names
    from ..saving import save as write
    from ..saving.write import former

    root = names.target(given.to)  # what cannot be done is said before anything is built
    former(root)
    names.package_name(given.name or root.name)
    names.version(given.version)
    ops, _ = loaded(given.paths, tell=not given.json)
    return of_reports([write(ops, given.to, name=given.name, version=given.version, layout=given.layout)])


def deploy(given: argparse.Namespace) -> Outcome:
    """`workbench deploy FILE.py:FUNCTION --to FOLDER`: what the function returns, a module and its example inputs."""
    from ..deploying import deploy as run
    from ..deploying import folder
    from ..saving import names

    path, _, name = given.model.rpartition(":")
    if not path or not name.isidentifier():
        raise WorkbenchError(f"say which function makes the model: model.py:build, got {given.model!r}")
    if not Path(path).is_file():
        raise WorkbenchError(f"{path} is not a file; it holds {name}(), which returns a module and its example inputs")
    root = names.target(given.to)
    folder.former(root)
    names.package_name(given.name or root.name)
    loaded(given.load, tell=not given.json)
    scope = runpy.run_path(path)
    if not callable(scope.get(name)):
        raise WorkbenchError(f"{path} has no function {name}()")
    made = scope[name]()
    if not isinstance(made, tuple) or len(made) != 2:
        raise WorkbenchError(f"{name}() of {path} returns two things, module and inputs; got {type(made).__name__}")
    return of_reports([run(*made, given.to, name=given.name, batch=given.batch, onnx=given.onnx)])


def written(path: str, report: Report) -> None:
    """A report as a page of its own."""
    from ..show import html

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<!DOCTYPE html>\n<meta charset="utf-8">\n{html.of(report)}\n')
    except OSError as error:
        raise WorkbenchError(f"the page was not written to {path}: {error.strerror}") from None


def each(given: argparse.Namespace, verb: Callable[[Op], Report]) -> Outcome:
    """One report for each op of the paths. Several ops do not stop at one that raises: `errors` holds what it raised.

    An interrupt ends it; what was found until then is there.
    """
    ops, _ = loaded(given.paths, tell=not given.json)
    return of_ops(ops, verb)


def of_ops(ops: Sequence[Op], verb: Callable[[Op], Report]) -> Outcome:
    """See `each`."""
    reports: list[Report] = []
    errors: dict[str, BaseException] = {}
    stopped = False
    for op in ops:
        try:
            reports.append(verb(op))
        except KeyboardInterrupt:
            stopped = True
        except (Exception, SystemExit) as error:  # the reference is the user's own code, and may raise anything
            errors[op.qualname] = error
        stopped = stopped or bool(reports and getattr(reports[-1], "stopped", False))
        if stopped:
            break
    if not reports and len(errors) == 1:
        raise next(iter(errors.values()))
    return replace(of_reports(reports), errors=errors, stopped=stopped)


def loaded(paths: Sequence[str], *, tell: bool = True) -> tuple[list[Op], list[Line]]:
    """The ops of files and folders, and the line of each kernel, which is told on the way."""
    from .. import cells, loading

    lines: list[Line] = []

    def heard(line: Line) -> None:
        lines.append(line)
        if tell:
            print(line, file=sys.stderr, flush=True)

    found: dict[str, Op] = {}
    with cells.telling(heard):
        for path in paths:
            found |= {op.qualname: op for op in loading.load(path)}
    return list(found.values()), lines


def _what_runs(op: Op) -> dict[str, object]:
    from ..commands import slots

    return {"name": op.qualname, "schema": str(op.schema), "slots": slots(op)}


def _names(ops: Sequence[Op]) -> str:
    return ", ".join(op.qualname for op in ops)
