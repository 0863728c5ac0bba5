"""A job under NVIDIA's compute-sanitizer: a worker of its own is started by it, takes the job, and ends.

There each tensor is an allocation of its own, without red zones and poison, so that the tool sees every byte beside it.
This takes tens of seconds a tool, and is only done when it is asked for. What the tool wrote is read in `findings`.
"""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import settings
from ..errors import ToolchainError
from . import under_tool
from .answer import answer
from .findings import Finding, fold, named, parse
from .guard import Block
from .protocol import Answer, Job
from .wire import Reply

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MISSING = (
    "compute-sanitizer is not here. It comes with the CUDA toolkit (NVIDIA's apt repository: "
    "`apt install cuda-sanitizer-13-0`; conda: `conda install -c nvidia cuda-sanitizer-api`); "
    "put its folder on PATH, or name the toolkit in CUDA_HOME"
)
MOST_REPORTS = 1000


@dataclass(frozen=True)
class Sanitized:
    """What the tools saw. `ran` are those that ran; `missing` says why there are none, and what to install.

    `problems` are sentences on tools that did not come to an end; `answers` are what the trial itself saw under each.
    """

    findings: tuple[Finding, ...] = ()
    ran: tuple[str, ...] = ()
    missing: str = ""
    problems: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return bool(self.ran) and not self.problems and all(f.warning for f in self.findings)


def program() -> str:
    """compute-sanitizer: on PATH, or in a CUDA toolkit that is named or in its usual place; "" where there is none."""
    homes = [*settings.cuda_homes(), "/usr/local/cuda"]
    folders = [settings.programs(), *(os.path.join(h, f) for h in homes for f in ("bin", "compute-sanitizer"))]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(folders)) or ""


def command(path: str, tool: str, log: str) -> tuple[str, ...]:
    """How the tool is started; the program to watch follows."""
    return (
        path, "--tool", tool, "--log-file", log, "--report-api-errors", "no", "--show-backtrace", "device",
        "--print-limit", str(MOST_REPORTS), "--target-processes", "all",
    )  # fmt: skip


def sanitize(job: Job, tools: Sequence[str] = ("memcheck", "racecheck"), *, limit_s: float = 120.0) -> Sanitized:
    """Take the steps of a job under each of these tools, for at most `limit_s` seconds each.

    >>> sanitize(job).findings[0]
    Finding(tool='memcheck', kind='Invalid __global__ write of size 4 bytes', kernel='scale(...)', ...)

    Lines are known where the kernels were compiled with line information. A tool that is not here, or that cannot
    work here, is no error: `missing` and `problems` say so.
    """
    path, started = program(), time.perf_counter()
    if not path:
        return Sanitized(missing=MISSING)
    found: list[Finding] = []
    problems: list[str] = []
    answers: list[Answer] = []
    ran: list[str] = []
    for tool in tools:
        assert tool in TOOLS, f"no tool of compute-sanitizer: {tool}"
        try:
            findings, told = _under(path, tool, job, limit_s)
        except ToolchainError as error:
            problems.append(f"{tool}: {error}")
            continue
        found += findings
        answers.append(told)
        ran.append(tool)
        if any(r.status == "hang" for r in told.results):
            problems.append(f"{tool}: not done within {limit_s:g} s")
    seconds = time.perf_counter() - started
    return Sanitized(fold(found), tuple(ran), "", tuple(problems), tuple(answers), seconds)


def _under(path: str, tool: str, job: Job, limit_s: float) -> tuple[tuple[Finding, ...], Answer]:
    told = under_tool.run(
        lambda log: command(path, tool, log), job, limit_s, extra={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    )
    if not told.log and not told.reply.frames:
        raise ToolchainError(f"compute-sanitizer wrote nothing.\n{told.output}".rstrip())
    return by_case(told.log, tool, job, told.reply), answer(job, told.order, told.reply, told.started)


def by_case(text: str, tool: str, job: Job, reply: Reply) -> tuple[Finding, ...]:
    """The findings with the case during which each was written, and the tensors that the worker had then."""
    found: list[Finding] = []
    data, begin = text.encode(), 0
    found_steps = steps(reply)
    for number, (blocks, end) in found_steps.items():
        part = data[begin:] if number == max(found_steps) else data[begin : max(end, begin)]
        begin = max(end, begin)
        case = job.steps[number].case
        for f in parse(part.decode(errors="replace"), tool):
            found.append(replace(named(f, blocks), case=case))
    if not found_steps:
        found += parse(text, tool)
    return fold(found)


def steps(reply: Reply) -> dict[int, tuple[list[Block], int]]:
    """For each step that began: what its kernels could reach, and how long the log was at its end."""
    found: dict[int, tuple[list[Block], int]] = {}
    current = -1
    for frame in reply.frames:
        try:
            kind, *content = pickle.loads(frame)
        except Exception:  # the code under trial wrote into our pipe
            break
        if kind == "begin":
            current = content[0]
            found[current] = (list(content[1]), 0)
        elif kind == "block" and current in found:
            found[current][0].append(content[0])
        elif kind == "log" and content[0] in found:
            found[content[0]] = (found[content[0]][0], content[1])
    return found
