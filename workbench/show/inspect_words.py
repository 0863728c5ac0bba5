"""The phrases and numbers of an inspection that text, html and widget share. Plain functions, no markup."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from ..reports.inspection import Comparison, FunctionRow, Inspection, KernelRow, Stage
from . import words

KERNEL = ("kernel", "regs", "spills", "stack", "shared", "block", "occupancy", "limited by")
FUNCTION = ("function", "instructions", "loops", "vectorized", "widest vector")


def head(report: Inspection) -> tuple[str, ...]:
    """("lab::rmsnorm v3 forward cuda", "raw CUDA, float32", "sm_90, NVRTC 13.0", "0.26 s")"""
    return (
        f"{report.op} v{report.version} {report.slot} {report.device}".strip(),
        ", ".join(part for part in (report.how, report.dtype) if part),
        ", ".join(part for part in (report.target, report.toolchain) if part),
        words.duration(report.seconds) if report.seconds > 0 else "",
    )


def table(report: Inspection) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of its numbers."""
    rows = [_cells(row) for row in report.rows]
    return (KERNEL if report.rows and isinstance(report.rows[0], KernelRow) else FUNCTION), rows


def _cells(row: KernelRow | FunctionRow) -> tuple[str, ...]:
    if isinstance(row, FunctionRow):
        width = f"{row.vector_bytes} bytes" if row.vector_bytes else "none"
        return row.function, f"{row.instructions:,}", str(row.loops), str(row.vectorized), width
    return (
        row.kernel, str(row.registers), size(row.spills), size(row.stack), shared(row), str(row.threads or "?"),
        words.percent(row.occupancy), row.limiter,
    )  # fmt: skip


def size(count: int) -> str:
    """`size(2048) == "2 KB"`, `size(0) == "none"`."""
    if count >= 1024:
        return f"{count / 1024:.3g} KB"
    return words.count(count, "byte") if count else "none"


def shared(row: KernelRow) -> str:
    """Static shared memory, and what the launch asks for besides: "1 KB + 16 KB"."""
    dynamic = "what the call asks for" if row.dynamic_shared < 0 else size(row.dynamic_shared)
    if not row.dynamic_shared:
        return size(row.shared)
    return f"{size(row.shared)} + {dynamic}" if row.shared else dynamic


def counts(stage: Stage) -> str:
    """`"24 global loads of 4 bytes, 16 FMA, 1 barrier"`."""
    return ", ".join(f"{n:,} {name if n > 1 else _one(name)}" for name, n in stage.counts)


def _one(many: str) -> str:
    """`_one("global loads of 4 bytes") == "global load of 4 bytes"`"""
    noun, of, rest = many.partition(" of ")
    noun, on, more = noun.partition(" on ")
    single = re.sub(r"(?<=p)ies$", "y", noun) if noun.endswith("ies") else noun.removesuffix("s")
    return f"{single}{on}{more}{of}{rest}".replace("divisions and root", "division or root")


_SPILL = re.compile(r"\b(?:STL|LDL)\b(?:\.|\s)|\b(?:ld|st)\.local\b")


def is_spill(line: str) -> bool:
    """Does the instruction move a register to or from a thread's own memory?"""
    return bool(_SPILL.search(line))


def stages(report: Inspection) -> str:
    """Which stages there are, and how to see them."""
    found = ", ".join(f"{s.name} ({words.count(len(s.entries), 'line')})" for s in report.stages)
    last = report.stages[-1] if report.stages else None
    line = busiest(report)
    how = f'print(report.stage("{last.name}"))' if last else ""
    return f"stages: {found}; {how}" + (f"; report.at({line}) is what became of line {line}" if line else "")


def busiest(report: Inspection) -> int:
    """The source line that became most of the last stage, 0 where no line is known."""
    counted = Counter(e.line for e in report.stages[-1].entries if e.line) if report.stages else Counter()
    return max(counted, key=lambda n: (counted[n], -n), default=0)


def notes(report: Inspection) -> list[str]:
    """Notes, and which other dtypes can be looked at."""
    assumed = dict.fromkeys(r.assumed for r in report.rows if isinstance(r, KernelRow) and r.assumed)
    others = f"also built for {', '.join(report.others)}: `inspect(dtype=...)`" if report.others else ""
    return [*report.notes, *assumed, *([others] if others else [])]


def compared(report: Comparison) -> list[tuple[str, str, str]]:
    """(what, left, right) for every number of the kernels that both have, else of the first of each."""
    (names, left), (others, right) = table(report.left), table(report.right)
    if names != others:
        return []
    made = []
    pairs = list(zip(left, right, strict=False))
    for one, two in pairs:
        named = f"{one[0]}: " if len(pairs) > 1 else ""
        made += [(f"{named}{what}", a, b) for what, a, b in zip(names[1:], one[1:], two[1:], strict=True)]
    for name in report.names:
        mine, theirs = (dict(s.counts) for s in report.stage(name))
        made += [(what, f"{mine.get(what, 0):,}", f"{theirs.get(what, 0):,}") for what in {**mine, **theirs}]
    return made


_REGISTER = re.compile(r"\b(?:U?R|UP|P|B)\d+\b|%\w*\d+\b|\$?L_*\w*\d+|`\(\.L_x_\d+\)|\.L\w*\d+|\b0x[0-9a-f]+\b")


def plainer(line: str) -> str:
    """An instruction without the numbers of its registers and labels, which change with everything before them."""
    return " ".join(_REGISTER.sub("#", line).split())


def opcodes(left: Stage, right: Stage) -> Sequence[tuple[str, int, int, int, int]]:
    """difflib's opcodes of two stages, registers and labels left out of the comparison."""
    a, b = ([plainer(e.text) for e in s.entries] for s in (left, right))
    return difflib.SequenceMatcher(None, a, b, autojunk=len(a) + len(b) > 6000).get_opcodes()


def tally(report: Comparison, name: str) -> tuple[int, int, int]:
    """(lines alike, lines only on the left, lines only on the right) of a stage."""
    made = opcodes(*report.stage(name))
    alike = sum(b - a for kind, a, b, _, _ in made if kind == "equal")
    only = [(b - a, d - c) for kind, a, b, c, d in made if kind != "equal"]
    return alike, sum(x for x, _ in only), sum(y for _, y in only)
