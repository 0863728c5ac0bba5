"""`op.check(sanitize=True)`: the installed kernels on the op's cases, under tools that see every access to memory.

For kernels of a GPU that is NVIDIA's compute-sanitizer, for C++ the compiler's own, in a build for this alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from .. import toolchain
from ..build import sanitized
from ..case import Case
from ..errors import WorkbenchError
from ..reports.report import Row
from ..tiers import Kernel
from ..trial import Job, sanitizer, watched
from ..trial.findings import Finding
from ..version import Version
from . import examine

TOOLS = {
    "memcheck": "no access out of bounds or misaligned, nothing that a free left behind",
    "racecheck": "no hazard between threads of a block in shared memory; races in global memory are not looked for",
    "address": "no access outside of a tensor, a local or a global variable, none to freed memory",
    "undefined": "no overflow of a signed integer, bad shift, null or misaligned pointer, bad index of an array",
}
SHOWN = 3


def rows(op) -> list[Row]:
    """A row for each tool and each kernel that is installed.

    >>> rows(rmsnorm)[0].detail
    'no access out of bounds or misaligned, nothing that a free left behind, on 6 cases'
    """
    versions = [v for _, v in sorted(op.slots.items()) if isinstance(v.kernel, Kernel)]
    if not versions:
        return [Row("sanitizer", "", "skip", "no kernel is installed, and sanitizers look at compiled code alone")]
    return [row for v in versions for row in (_of_gpu(op, v) if v.device == "cuda" else _of_cpu(op, v))]


def _name(version: Version) -> str:
    return f"{version.slot} {version.device} v{version.number}"


def _of_gpu(op, version: Version) -> list[Row]:
    name, kernel = _name(version), version.kernel.with_lines()
    if kernel.trial_device != "cuda":
        return [Row("sanitizer", name, "skip", f"not run: {kernel.unrunnable}")]
    return _told(op, kernel, name, lambda job: sanitizer.sanitize(job, ("memcheck", "racecheck")))


def _of_cpu(op, version: Version) -> list[Row]:
    name = _name(version)
    try:
        compiler = toolchain.compiler()
        kernel = version.kernel.with_flags(sanitized.flags(compiler))
        if kernel is None:
            return [Row("sanitizer", name, "skip", f"not run: code of the {version.tier} tier is not built for it")]
        preloads = sanitized.preloads(compiler)
    except WorkbenchError as error:
        return [Row("sanitizer", name, "skip", error.message)]
    if not preloads:
        return [Row("sanitizer", name, "skip", sanitized.missing(compiler))]
    files = [kernel.source.file, *map(os.path.basename, kernel.headers)]
    return _told(op, kernel, name, lambda job: watched.watch(job, preloads, files))


def _told(op, kernel: Kernel, name: str, run: Callable[[Job], sanitizer.Sanitized]) -> list[Row]:
    try:
        cases, _ = examine.build(op, kernel, op.case_list())
        found = run(examine.job_of(op, kernel, cases))
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
