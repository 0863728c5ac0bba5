"""What a compiler made of a version, as plain data: stages of text, each line with the source line it came from.

How it looks is `show`'s business; how it is found out is in `inspect`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import SchemaError
from ..source import Source
from .report import Report


@dataclass(frozen=True)
class Entry:
    """One line of a stage: an instruction, a label, a heading.

    `line` is the source line that it came from, as the user counts, 0 for none; `callers` are the lines into which
    that one was inlined, innermost first.
    """

    text: str
    line: int = 0
    callers: tuple[int, ...] = ()

    def of(self, line: int) -> bool:
        """Did it come from that source line, or from code that was inlined there?"""
        return line > 0 and (line == self.line or line in self.callers)


@dataclass(frozen=True)
class Stage:
    """One of the texts between source and machine: "ptx", "sass", "assembly", "remarks", "ttir" ...

    >>> print(report.stage("sass"))                             # source lines in the margin
    >>> [e.text.strip() for e in report.stage("sass").at(31)]   # what line 31 became
    ['LDG.E.CONSTANT R5, desc[UR4][R4.64]', 'FFMA R0, R5, R5, R0']
    """

    name: str
    entries: tuple[Entry, ...]
    counts: tuple[tuple[str, int], ...] = ()  # instructions by what they do, the frequent ones first

    @property
    def text(self) -> str:
        """The text without the source lines in the margin."""
        return "\n".join(e.text for e in self.entries)

    @property
    def lines(self) -> tuple[int, ...]:
        """The source lines that something here came from."""
        return tuple(sorted({n for e in self.entries for n in (e.line, *e.callers) if n}))

    def at(self, line: int) -> tuple[Entry, ...]:
        """What came from one source line."""
        return tuple(e for e in self.entries if e.of(line))

    def __str__(self) -> str:
        width = max((len(str(e.line)) for e in self.entries), default=1)
        return "\n".join(f"{e.line or '':>{width}} | {e.text}".rstrip() for e in self.entries)


@dataclass(frozen=True)
class KernelRow:
    """What one GPU kernel takes: registers a thread, bytes, and how many of its threads fit on a multiprocessor.

    `shared` is static, `dynamic_shared` what the launch asks for (-1 where only a call tells). `occupancy` is the
    estimated share of the warps that a multiprocessor can hold, 0..1; `limiter` what keeps it from holding more.
    `threads` is the size of a block; `assumed` says where that number comes from if no directive says it.
    """

    kernel: str
    registers: int
    spills: int
    stack: int
    shared: int
    dynamic_shared: int
    threads: int
    occupancy: float
    limiter: str
    blocks: int = 0  # that fit on one multiprocessor
    assumed: str = ""
    instructions: int = 0


@dataclass(frozen=True)
class FunctionRow:
    """What one C++ function became: how many instructions, and the width in bytes of its widest vectors."""

    function: str
    instructions: int
    vector_bytes: int
    loops: int
    vectorized: int  # of its innermost loops, those that compute on vectors


@dataclass(frozen=True)
class Finding:
    """Something worth knowing, with the source line that it is about, 0 for none."""

    line: int
    text: str
    bad: bool = False  # costs time: a spill, say


@dataclass(frozen=True)
class Inspection(Report):
    """What the compiler made of one version for one choice of dtypes: the outcome of `op.inspect()`.

    >>> report = rmsnorm.inspect()
    >>> print(report)                        # a summary
    >>> report.rows[0].registers, report.rows[0].occupancy
    (32, 1.0)
    >>> print(report.stage("sass"))
    """

    op: str
    version: int
    slot: str
    device: str
    how: str  # "raw CUDA"
    dtype: str  # "float32"; "x float32, w bfloat16" where they differ; "" where one build serves all
    target: str  # "sm_90", "x86_64"
    toolchain: str
    source: Source
    rows: tuple[KernelRow | FunctionRow, ...]
    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # further dtypes that it was built for
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Nothing here is bad: no register went to memory."""
        return not any(f.bad for f in self.findings)

    @property
    def title(self) -> str:
        """`v3 float32`."""
        return f"v{self.version} {self.dtype}".strip()

    def stage(self, name: str) -> Stage:
        """One stage by its name. SchemaError, with the names that there are, for another."""
        for found in self.stages:
            if found.name == str(name).lower():
                return found
        raise SchemaError(f"{self.how} has no stage {name!r}; it has {', '.join(s.name for s in self.stages)}")

    def at(self, line: int) -> dict[str, tuple[str, ...]]:
        """What one source line became, stage by stage; stages with nothing of it are left out."""
        found = {s.name: tuple(e.text.strip() for e in s.at(line)) for s in self.stages}
        return {name: texts for name, texts in found.items() if texts}

    def widget(self) -> object:
        """In a running notebook: pick a stage, choose a source line, see what became of it. Elsewhere the report."""
        from .. import show

        return show.widget_of(self)

    def __str__(self) -> str:
        from ..show import inspect_text

        return inspect_text.inspection(self)


@dataclass(frozen=True)
class Comparison(Report):
    """Two versions side by side; the one that was asked for is `left`, `against` is `right`.

    >>> both = rmsnorm.inspect(1, against=2)
    >>> both.titles, both.left.version
    (('v1', 'v2'), 1)
    """

    left: Inspection
    right: Inspection

    @property
    def ok(self) -> bool:
        """Is nothing bad in either?"""
        return self.left.ok and self.right.ok

    @property
    def rows(self) -> tuple[tuple[KernelRow | FunctionRow, ...], ...]:
        """The rows of both."""
        return (self.left.rows, self.right.rows)

    @property
    def titles(self) -> tuple[str, str]:
        """What tells the two apart: ("v3", "v5"), with dtypes where these differ."""
        if self.left.dtype == self.right.dtype:
            return f"v{self.left.version}", f"v{self.right.version}"
        return self.left.title, self.right.title

    @property
    def names(self) -> tuple[str, ...]:
        """The stages that both have."""
        theirs = {s.name for s in self.right.stages}
        return tuple(s.name for s in self.left.stages if s.name in theirs)

    def stage(self, name: str) -> tuple[Stage, Stage]:
        """One stage of both."""
        return self.left.stage(name), self.right.stage(name)

    def widget(self) -> object:
        """In a running notebook: pick a stage and a source line, see what became of it. Elsewhere the report."""
        from .. import show

        return show.widget_of(self)

    def __str__(self) -> str:
        from ..show import inspect_text

        return inspect_text.comparison(self)


def numbered(source: Source) -> list[tuple[int, str]]:
    """The lines of a source with the numbers that the user knows."""
    return list(enumerate(source.text.rstrip("\n").split("\n"), source.first_line))


def headed(kernels: Sequence[tuple[str, Sequence[Entry]]], mark: str) -> tuple[Entry, ...]:
    """The entries of several kernels, one after the other; a heading above each where there are several."""
    if len(kernels) < 2:
        return tuple(e for _, entries in kernels for e in entries)
    return tuple(e for name, entries in kernels for e in (Entry(f"{mark} {name}"), *entries, Entry("")))
