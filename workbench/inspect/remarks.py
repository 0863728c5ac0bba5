"""What gcc and clang say about the loops that they vectorized, or did not: their remarks as findings. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

GCC = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<kind>optimized|missed|note): +(?P<said>.*)$")
CLANG = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): remark: (?P<said>.*?)"
    r" \[-R(?P<kind>pass|pass-missed|pass-analysis)=(?P<by>[\w-]+)\]$"
)
KINDS = {"optimized": "vectorized", "pass": "vectorized", "missed": "missed", "pass-missed": "missed",
         "note": "note", "pass-analysis": "note"}  # fmt: skip
VECTORS = re.compile(r"(loop|basic block part) vectorized using (\d+) byte vectors")
CLANG_VECTORS = re.compile(r"vectorized loop \(vectorization width: (\d+), interleaved count: (\d+)\)")
# What gcc says of its own inside, of statements that need no vectors, or only because of another remark.
NOISE = re.compile(
    r"no vectype for stmt|statement clobbers memory|couldn't vectorize loop$|not vectorized: no grouped stores|"
    r"unsupported data-type|bad data references|loop nest containing two or more|multiple nested loops|"
    r"^loop not vectorized$|no optimal partial vector|unrecognized stmt|splitting region at"
)
ALIASING = "in a version for pointers that do not overlap, which is checked at each run: `__restrict__` spares that"


@dataclass(frozen=True)
class Remark:
    """`kind` is "vectorized", "missed" or "note"."""

    line: int
    column: int
    kind: str
    text: str


def parse(log: str, file: str) -> tuple[Remark, ...]:
    """The remarks about one file, each once, in the order of its lines.

    >>> parse("a.cpp:10:27: optimized: loop vectorized using 32 byte vectors", "a.cpp")
    (Remark(line=10, column=27, kind='vectorized', text='loop vectorized using 32 byte vectors'),)
    """
    found: dict[Remark, None] = {}
    for row in log.splitlines():
        at = GCC.match(row) or CLANG.match(row)
        if at and (at["file"] == file or at["file"].endswith(f"/{file}")):
            made = Remark(int(at["line"]), int(at["column"]), KINDS[at["kind"]], at["said"].strip())
            found[made] = None
    return tuple(sorted(found, key=lambda r: (r.line, r.column)))


def loops(remarks: Iterable[Remark]) -> dict[int, tuple[str, str]]:
    """For each line with a loop ("vectorized" or "missed", why), best news first where one line has several.

    >>> loops(parse("a.cpp:10:27: optimized: loop vectorized using 32 byte vectors", "a.cpp"))
    {10: ('vectorized', 'vectors of 32 bytes')}
    """
    found: dict[int, tuple[str, str]] = {}
    reasons: dict[int, list[str]] = {}
    for r in remarks:
        said = _vectorized(r.text) if r.kind == "vectorized" else ""
        former = found.get(r.line)
        if said and (former is None or former[0] == "missed" or _bytes(said) > _bytes(former[1])):
            found[r.line] = "vectorized", said
        elif r.kind == "missed" and "loop" in r.text and former is None:
            found[r.line] = "missed", ""
        if r.kind != "vectorized" and not NOISE.search(r.text):
            reasons.setdefault(r.line, []).append(_plain(r.text))
        elif "versioned" in r.text and "aliasing" in r.text:
            reasons.setdefault(r.line, []).append(ALIASING)
    return {
        line: (kind, "; ".join(dict.fromkeys([*([said] if said else []), *reasons.get(line, [])[:2]])))
        for line, (kind, said) in sorted(found.items())
    }


def _vectorized(said: str) -> str:
    gcc, clang = VECTORS.search(said), CLANG_VECTORS.search(said)
    if gcc and gcc[1] == "loop":
        return f"vectors of {gcc[2]} bytes"
    return f"{clang[1]} elements at a time, {clang[2]} such vectors a round" if clang else ""


def _bytes(said: str) -> int:
    return int((re.search(r"\d+", said) or ["0"])[0])


def _plain(said: str) -> str:
    return re.sub(r"^(?:not vectorized|loop not vectorized): ", "", said)
