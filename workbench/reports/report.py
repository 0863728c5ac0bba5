"""The outcome of a verb: plain frozen data that prints as text and goes to JSON. How it looks is `show`'s business."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any

from ..errors import Diagnostic, WorkbenchError

NO_ROUNDING = -1  # the power of ten from which on a relative error is none in any dtype
FAR = 0.03  # of the larger of what came and what was wanted; a few roundings to bfloat16 stay below
NOT_RUN = "compiled, not run"  # the detail of a case that this machine has no device for


def plain(value: object) -> Any:
    """Dataclasses, tuples, dtypes and the like as what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """A pandas DataFrame of rows, a column a key; WorkbenchError where pandas is not installed."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise WorkbenchError(
            "to_dataframe() needs pandas, which is not installed: `pip install pandas`; `.rows` and `.to_dict()` "
            "hold the same without it"
        ) from None
    return pandas.DataFrame(rows)


class Report:
    """What every report can do: `.ok`, `.rows`, `str()`, `.to_dict()`, and show itself in a notebook.

    >>> report = rmsnorm.check()
    >>> report.ok, report.rows[0].status
    (True, 'pass')
    """

    @property
    def ok(self) -> bool:
        """Is all well? Each report says of what."""
        raise NotImplementedError

    def to_dict(self) -> dict:
        """The whole report as JSON-ready data, with `ok` added."""
        return {**plain(self), "ok": self.ok}

    def _repr_mimebundle_(self, include=None, exclude=None, **_) -> dict:
        from .. import show  # the renderers stand above the data: fetched only when something is to be seen

        return show.bundle(self)


@dataclass(frozen=True)
class Progress:
    """How far slow work has come, of whatever verb: what it is at, and steps done of those known by now."""

    op: str
    at: str
    done: int
    of: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """One line of a check: what was checked, on which case, how it went, what that proved, and the cure.

    `mismatch` is where the values of a failed one differ, for the picture.
    """

    check: str
    case: str
    status: str  # "pass", "fail" or "skip"
    detail: str = ""
    cure: str = ""
    mismatch: Mismatch | None = None


@dataclass(frozen=True)
class Check(Report):
    """The outcome of `op.check()` and of `wb.doctor()`.

    >>> report = rmsnorm.check()
    >>> [row.check for row in report.rows if row.status == "fail"]
    []

    `op` is the qualified name, `level` is "quick", "full" or "doctor", `seconds` the whole duration. On a card `was`
    says of which versions it was, where others run by now.
    """

    op: str
    rows: tuple[Row, ...]
    level: str = "quick"
    seconds: float = 0.0
    was: str = ""

    @property
    def ok(self) -> bool:
        """Did no row fail?"""
        return all(r.status != "fail" for r in self.rows)

    @property
    def stopped(self) -> bool:
        """Did an interrupt end it?"""
        return any(r.check == "stopped" for r in self.rows)

    def __str__(self) -> str:
        from ..show import text

        return text.check(self)


@dataclass(frozen=True)
class Mismatch:
    """Where one output differs: its shape, how many elements, and the worst of them as (index, got, wanted).

    `wrong` marks the elements that differ, folded to at most 64 x 96 cells of 0..1 (share of wrong elements in the
    cell), row by row; `unwritten` counts those that still held the poison, so that nothing ever wrote them.
    `errors` is the same map of the largest error in each cell, as a share of the largest of all. `histogram` counts
    elements by the power of ten of their relative error: (-3, 12) is 12 of 0.001 up to 0.01; None stands for none at
    all and 99 for NaN or infinity in the wrong place. `inputs` says what went into each of the worst. `borders` are
    sizes of blocks that the kernel declares, `because` is what its text says of the reason,
    `on` the input that it is of, where the sentence above it is about another.
    """

    output: str
    shape: tuple[int, ...]
    count: int
    total: int
    unwritten: int
    worst: tuple[tuple[tuple[int, ...], float, float], ...]
    wrong: tuple[tuple[float, ...], ...] = ()
    errors: tuple[tuple[float, ...], ...] = ()
    histogram: tuple[tuple[int | None, int], ...] = ()
    inputs: tuple[str, ...] = ()
    borders: tuple[int, ...] = ()
    because: str = ""
    on: str = ""

    @property
    def far(self) -> bool:
        """Is the worst element further off, for its size, than rounding puts it in any dtype?"""
        return any(not abs(got - wanted) <= FAR * max(abs(got), abs(wanted)) for _, got, wanted in self.worst[:1])


@dataclass(frozen=True)
class Outcome:
    """How one case went in the trial.

    `status` is one of agree, mismatch, crash, hang, overrun, mutation, error, skip. `share` is the largest error as
    a share of the allowed one (1.0 is the limit). `detail` is one sentence. `how` says in which configuration an
    autotuned kernel ran that went wrong: "kernel with BLOCK=64, num_warps=4".
    """

    case: str
    dtype: str  # "float32", "" when the case fixes all of its dtypes
    status: str
    share: float = 0.0
    detail: str = ""
    mismatch: Mismatch | None = None
    how: str = ""


@dataclass(frozen=True)
class Trial(Report):
    """What a new build did on the op's cases, in the worker: one outcome a case, and what it printed.

    >>> rmsnorm.versions[1].trial.closest.status
    'agree'
    """

    outcomes: tuple[Outcome, ...]
    seconds: float = 0.0
    printed: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[Outcome, ...]:
        """The outcomes, one a case."""
        return self.outcomes

    @property
    def ok(self) -> bool:
        """Did all that was run agree?"""
        return all(o.status in ("agree", "skip") for o in self.outcomes)

    @property
    def closest(self) -> Outcome | None:
        """The agreeing outcome that came closest to its limit."""
        judged = [o for o in self.outcomes if o.status == "agree"]
        return max(judged, key=lambda o: o.share, default=None)

    def __str__(self) -> str:
        from ..show import text

        return text.trial(self)


@dataclass(frozen=True)
class Line(Report):
    """The one line under a cell that builds: what was installed, or why not.

    >>> line = rmsnorm.last_line
    >>> line.installed, line.version, line.former, line.rough_case
    (True, 2, 1, 'llama')

    `seconds` is cell run to installed and checked; `rough_us` times the new version on `rough_case`,
    `former_us` the one before it, 0.0 when not timed. `still` is what runs after a refusal, e.g. "v6".
    """

    op: str
    slot: str  # "forward" or "backward"
    language: str  # "cpp", "cuda", "triton"
    version: int
    installed: bool
    seconds: float
    tier: str = "raw"
    cached: bool = False
    trial: Trial | None = None
    resources: str = ""  # "38 regs, no spills"
    unrun: str = ""  # "compiled for sm_90, not run: no GPU here"; "" for what was run
    rough_us: float = 0.0
    rough_case: str = ""
    former: int = 0
    former_us: float = 0.0
    refused: str = ""  # one sentence
    still: str = ""
    hint: str = ""  # where to look or what to type next
    notes: tuple[str, ...] = ()
    title: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()  # of a build that failed, first error first
    cost: str = ""  # why this tier, and what a faster one would need

    @property
    def ok(self) -> bool:
        """Was it installed?"""
        return self.installed

    @property
    def rows(self) -> tuple[Outcome, ...]:
        """The outcomes of its trial."""
        return self.trial.outcomes if self.trial else ()

    def __str__(self) -> str:
        from ..show import text

        return text.line(self)


@dataclass(frozen=True)
class Watched(Report):
    """What `%wb watch` has loaded: the newest line of each slot, and what kept it from loading the rest."""

    path: str
    lines: tuple[Line, ...] = ()
    error: str = ""  # what no line tells: a file that cannot be read, a Python error in op.py
    state: str = "watching"  # or "stopped"
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Is all of it loaded and installed?"""
        return not self.error and all(line.ok for line in self.lines)

    @property
    def rows(self) -> tuple[Line, ...]:
        """The newest line of each slot."""
        return self.lines

    def __str__(self) -> str:
        from ..show import text

        return text.watched(self)


__all__ = ["Check", "Line", "Mismatch", "Outcome", "Progress", "Report", "Row", "Trial", "Watched", "data_frame"]
