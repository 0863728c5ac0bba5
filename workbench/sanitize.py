"""`op.check(sanitize=True)`: the installed GPU kernels on the op's cases, under NVIDIA's compute-sanitizer."""

from __future__ import annotations

from collections.abc import Sequence

from . import examine
from .case import Case
from .errors import WorkbenchError
from .report import Row
from .tiers import Kernel
from .trial import sanitizer
from .trial.findings import Finding
from .version import Version

TOOLS = {
    "memcheck": "no access out of bounds or misaligned, nothing that a free left behind",
    "racecheck": "no hazard between threads of a block in shared memory; races in global memory are not looked for",
}
SHOWN = 3


def rows(op) -> list[Row]:
    """A row for each tool and each GPU kernel that is installed.

    >>> rows(rmsnorm)[0].detail
    'no access out of bounds or misaligned, nothing that a free left behind, on 6 cases'
    """
    versions = [v for (_, device), v in sorted(op.slots.items()) if device == "cuda" and isinstance(v.kernel, Kernel)]
    if not versions:
        return [
            Row("sanitizer", "", "skip", "no GPU kernel is installed, and compute-sanitizer looks at GPU code alone")
        ]
    return [row for v in versions for row in _of(op, v)]


def _of(op, version: Version) -> list[Row]:
    name, kernel = f"{version.slot} {version.device} v{version.number}", version.kernel.with_lines()
    if kernel.trial_device != "cuda":
        return [Row("sanitizer", name, "skip", f"not run: {kernel.unrunnable}")]
    try:
        cases, _ = examine.build(op, kernel, op.case_list())
        found = sanitizer.sanitize(examine.job_of(op, kernel, cases), tuple(TOOLS))
    except WorkbenchError as error:
        return [Row("sanitizer", name, "fail", error.message)]
    if found.missing:
        return [Row("sanitizer", name, "skip", found.missing)]
    told = [_row(tool, name, [f for f in found.findings if f.tool == tool], cases) for tool in found.ran]
    return [*told, *(Row("sanitizer", name, "skip", problem) for problem in found.problems)]


def _row(tool: str, name: str, found: Sequence[Finding], cases: Sequence[Case]) -> Row:
    wrong = [f for f in found if not f.warning]
    if not wrong:
        return Row(tool, name, "pass", f"{TOOLS[tool]}, on {len(cases)} case{'s' * (len(cases) != 1)}")
    more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    detail = "; ".join(f"{f.case}: {f}" if f.case else str(f) for f in wrong[:SHOWN]) + more
    cure = "" if wrong[0].line else "Compile with line information to see the line: `//! flags -lineinfo`."
    return Row(tool, name, "fail", detail, cure)
