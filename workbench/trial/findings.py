"""What a sanitizer saw, as rows: a pure parser for the text of NVIDIA's compute-sanitizer.

A row knows no tool of its own, so that what another one reports (address sanitizer, for C++) fits it as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .guard import Block

Index = tuple[int, int, int]
MARK = "========="
# What stands at the head of a report. Other lines there are the program's summary, or errors of API calls, which the
# trial itself tells.
_HEAD = re.compile(
    r"(Invalid |Uninitialized |Barrier error|Misaligned |(?:(?:Error|Warning|WARN|ERROR): ?)?.*Race reported)"
)
_NEW = re.compile(r"(?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?$")
_OLD = re.compile(r"0x[0-9a-f]+ in (?:(?P<file>.+?):(?P<line>\d+):)?(?P<kernel>.+)$")
_THREAD = re.compile(r"by thread \((\d+),\s*(\d+),\s*(\d+)\) in block \((\d+),\s*(\d+),\s*(\d+)\)")
_NEAREST = re.compile(r"nearest allocation at (0x[0-9a-f]+)")
_ADDRESS = re.compile(r"(?:Address|Access (?:to|at)) (0x[0-9a-f]+)")
_RACE = re.compile(r"(?P<access>\w+) access at (?P<place>.+?)(?: \[(?P<count>\d+) hazards?\])?$")


@dataclass(frozen=True)
class Finding:
    """One mistake that a sanitizer saw, at one place; `count` threads or hazards made it there.

    `line` is 0 where the code has no line information. `thread` and `block` are those of the first one. `address` and
    `allocation` (the nearest one) are 0 where none is told.
    """

    tool: str  # "memcheck", "racecheck", "initcheck" or "synccheck"; "address" or "undefined"
    kind: str  # "Invalid __global__ write of size 4 bytes"
    kernel: str = ""
    file: str = ""
    line: int = 0
    thread: Index | None = None
    block: Index | None = None
    detail: str = ""
    case: str = ""
    count: int = 1
    warning: bool = False
    address: int = 0
    allocation: int = 0

    def __str__(self) -> str:
        where = f" at {self.file}:{self.line}" if self.line else ""
        by = f" by thread {_index(self.thread)} in block {_index(self.block)}" if self.thread and self.block else ""
        more = f" and {self.count - 1} more" if self.count > 1 and self.thread else ""
        kernel = self.kernel.partition("(")[0].removeprefix("void ")
        said = f"{self.kind} in {kernel}" if kernel else self.kind
        return f"{said}{where}{by}{more}" + (f": {self.detail}" if self.detail else "")


def parse(text: str, tool: str) -> tuple[Finding, ...]:
    """The findings in what compute-sanitizer wrote, those at one place in one row.

    >>> parse(log, "memcheck")[0].line
    12
    """
    return fold([f for report in _reports(text) if (f := _finding(report, tool))])


def fold(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Equal mistakes of many threads as one, in the order of their first."""
    rows: dict[tuple, Finding] = {}
    for f in findings:
        key = (f.tool, f.kind, f.kernel, f.file, f.line, f.case, f.warning, f.detail if f.tool == "racecheck" else "")
        first = rows.get(key)
        rows[key] = replace(first, count=first.count + f.count) if first else f
    return tuple(rows.values())


def named(finding: Finding, blocks: Sequence[Block]) -> Finding:
    """The same finding, with the tensor beside which it happened; `blocks` are what the kernel could reach."""
    for block in reversed(blocks):
        if not block.tensors:
            continue
        if finding.allocation == block.pages or block.start <= finding.address < block.end:
            name, meta = block.tensors[0]
            if not name:
                continue
            what = f"{name} ({meta})" if meta else name
            distance = finding.address - block.end
            if distance >= 0:
                said = f"{distance} byte{'' if distance == 1 else 's'} past the end of {what}"
            elif finding.address < block.start:
                said = f"{block.start - finding.address} bytes before the start of {what}"
            else:
                said = f"in {what}"
            return replace(finding, detail=said)
    return finding


def _reports(text: str) -> list[list[str]]:
    """The lines of each report, without the mark in front."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith(MARK):
            continue  # printed by the program
        rest = line[len(MARK) :]
        words = rest.strip()
        deeper = rest.startswith("   ") or words.startswith(("at ", "by ", "and "))
        if words and not deeper:
            found.append([words])
        elif words and found:
            last = found[-1]
            if words.startswith(("in ", "of size ")) and len(last) > 1:  # a line that was broken
                last[-1] += f" {words}"
            else:
                last.append(words)
    return found


def _finding(lines: Sequence[str], tool: str) -> Finding | None:
    head = lines[0]
    if not _HEAD.match(head):
        return None
    if "Race reported" in head:
        return _race(lines, tool)
    found = Finding(tool, head.rstrip("."))
    details: list[str] = []
    for line in lines[1:]:
        if line.startswith("at ") and not found.kernel:
            found = _at(found, line[3:])
        elif thread := _THREAD.match(line):
            a, b, c, d, e, f = (int(n) for n in thread.groups())
            found = replace(found, thread=(a, b, c), block=(d, e, f))
        elif line.startswith(("Saved host backtrace", "Host Frame", "Device Frame")):
            break
        else:
            details.append(line)
    said = " ".join(details)
    address, nearest = _ADDRESS.search(said), _NEAREST.search(said)
    return replace(
        found,
        detail=said,
        address=int(address[1], 16) if address else 0,
        allocation=int(nearest[1], 16) if nearest else 0,
    )


def _race(lines: Sequence[str], tool: str) -> Finding | None:
    text = [
        part for line in lines for part in re.split(r"\band (?=\w+ access at )|between ", line) if " access at " in part
    ]
    accesses = [m for part in text if (m := _RACE.match(part.strip()))]
    if not accesses:
        return None
    found = _at(
        Finding(tool, "race in shared memory", warning=lines[0].lower().startswith("warn")), accesses[0]["place"]
    )
    told = []
    for m in accesses:
        line = _at(Finding(tool, ""), m["place"]).line
        told.append(m["access"].lower() + (f" on line {line}" if line else ""))
    count = sum(int(m["count"] or 0) for m in accesses)
    unordered = (
        f"{told[0]} and {', '.join(dict.fromkeys(told[1:]))} with no barrier between them" if told[1:] else told[0]
    )
    return replace(found, detail=unordered, count=max(count, 1))


def _at(finding: Finding, place: str) -> Finding:
    found = _OLD.match(place) or _NEW.match(place)
    if not found:
        return replace(finding, kernel=place)
    return replace(finding, kernel=found["kernel"], file=found["file"] or "", line=int(found["line"] or 0))


def _index(index: Index) -> str:
    return "({}, {}, {})".format(*index)
