"""Every error that a user can meet.

A message says what was wrong, what was got and what to do; the public verb that was running adds, once, what is
still installed (`still`). Nothing here imports the rest of the package.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler or of our own parsers, on the user's own line.

    `line` and `column` count from 1; `line` is the line of the cell (its magic line is line 1) or of the file,
    0 when a message belongs to no line.
    """

    file: str
    line: int
    column: int
    severity: str  # "error", "warning" or "note"
    message: str
    excerpt: str = ""  # the source line, as the user typed it

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        shown = f"\n    {self.excerpt.strip()}" if self.excerpt.strip() else ""
        return f"{place}: {self.severity}: {self.message}{shown}"


class WorkbenchError(Exception):
    """Base of all errors raised on purpose.

    >>> try:
    ...     wb.cpp("scale", "void scal(float* out) {}")
    ... except wb.WorkbenchError as error:
    ...     print(error)          # what was wrong, what to do, what is still installed
    cell, line 1: no function is called 'scale' here; did you mean 'scal'? the cell defines scal
    scale forward still runs the reference
    """

    def __init__(self, message: str, *, line: int = 0, file: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.file = file
        self.still = ""  # e.g. "rmsnorm still runs v6"; set once, by the public verb
        self.brief = ""  # one line for a notebook that has shown the rest already

    def __str__(self) -> str:
        place = f"{self.file or 'cell'}, line {self.line}: " if self.line else ""
        return f"{place}{self.message}" + (f"\n{self.still}" if self.still else "")

    def _render_traceback_(self) -> list[str]:
        """IPython asks for this: the message alone, since the frames of this package help nobody."""
        return [f"{type(self).__name__}: {self.brief or self}"]


class SchemaError(WorkbenchError):
    """A name, annotation, directive or signature that cannot become an op; what a verb is asked for and cannot be.

    >>> wb.op("scale")
    Traceback (most recent call last):
    workbench.errors.SchemaError: 'scale' has no namespace: write for instance 'lab::scale'
    """


class BuildError(WorkbenchError):
    """The compiler said no. `diagnostics` holds its messages, first error first; `log` its whole output.

    >>> try:
    ...     wb.cpp("scale", broken_text)
    ... except wb.BuildError as error:
    ...     print(error.diagnostics[0].line, error.diagnostics[0].severity)
    3 error
    """

    def __init__(self, message: str, *, diagnostics: tuple[Diagnostic, ...] = (), log: str = "", **where) -> None:
        super().__init__(message, **where)
        self.diagnostics = diagnostics
        self.log = log


class TrialError(WorkbenchError):
    """A new build did not survive its trial.

    >>> try:
    ...     wb.cpp("scale", wrong_text)
    ... except wb.TrialError as error:
    ...     print(error.kind, error.case)
    mismatch 4x128

    `kind` is one of crash, hang, mismatch (one that raises, too), overrun, mutation; `case` names the case it happened
    on; `report` is the whole outcome of the trial.
    """

    def __init__(self, message: str, *, kind: str, case: str = "", report: object = None, **where) -> None:
        super().__init__(message, **where)
        self.kind = kind
        self.case = case
        self.report = report


class ToolchainError(WorkbenchError):
    """A compiler, header or tool that is needed is not there, or does not work: `wb.doctor()` says what to install."""


class SaveError(WorkbenchError):
    """An op that cannot be written as a package, or a model that cannot be deployed.

    >>> wb.save([], "ops")
    Traceback (most recent call last):
    workbench.errors.SaveError: there is no op to save: wb.save([op, ...], path)

    `asked` says that the fault is in what was asked for, a name, a version or a folder, and not in the op.
    """

    def __init__(self, message: str, *, asked: bool = False, **where) -> None:
        super().__init__(message, **where)
        self.asked = asked


def stopped(said: str) -> KeyboardInterrupt:
    """An interrupt that says in one line what it left, where a notebook would show the frames of this package."""
    made = KeyboardInterrupt(said)
    made._render_traceback_ = lambda: [f"KeyboardInterrupt: {said}"]  # type: ignore[attr-defined]
    return made
