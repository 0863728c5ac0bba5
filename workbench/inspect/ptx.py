"""PTX on the user's lines, from NVRTC or Triton. Pure text."""

from __future__ import annotations

import re

from ..reports.inspection import Entry
from . import demangle
from .assembly import is_file

FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
ENTRY = re.compile(r"^\s*(?:\.(?:weak|visible|extern|common)\s+)*\.(?:entry|func)\b(?:\s*\([^)]*\))?\s*([\w$]+)")
DROPPED = re.compile(r"^\s*(?:\.(?:file|version|target|address_size)\b|//|\$L__(?:info|tmp|func_(?:begin|end))\w*:|$)")
SECTION = re.compile(r"^\s*\.section\b")
PARAMETER = re.compile(r"\b_?[A-Za-z]\w*_param_(?=\d)")  # with the whole symbol in it, which says nothing
THREADS = re.compile(r"\.(?:req|max)ntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")

Place = tuple[str, str, str]  # number of the file, line, column


def parse(text: str, file: str) -> tuple[Entry, ...]:
    """The PTX without its header, comments and debug sections, each line with the source line above it in `.loc`.

    >>> parse('.file 1 "a/cell"\\n.entry f(\\n)\\n{\\n.loc 1 7 3\\nret;\\n}', "cell")[3]
    Entry(text='ret;', line=7, callers=())
    """
    found: list[Entry] = []
    depth = 0
    for row, lines in zip(text.splitlines(), places(text, file), strict=True):
        if SECTION.match(row):
            break  # what follows is for debuggers
        if DROPPED.match(row) or PLACE.match(row):
            continue
        depth += row.count("{") - row.count("}")
        instruction = depth > 0 and lines and not re.match(r"^\s*(?:\.|\{|\}|\)|[$\w]+:)", row)
        found.append(Entry(_shown(row), lines[0] if instruction else 0, lines[1:] if instruction else ()))
    return tuple(found)


def _shown(row: str) -> str:
    head = ENTRY.match(row)
    if head:
        row = row.replace(head[1], demangle.short(head[1]))
    return PARAMETER.sub("param_", re.sub(r"\s*// .*$", "", row).rstrip().expandtabs(4))


def places(text: str, file: str) -> list[tuple[int, ...]]:
    """For each line of the text the user's lines that it came from, the innermost first.

    What was inlined says so in `.loc` itself (NVRTC), or in a comment behind it (Triton).
    """
    rows = text.splitlines()
    files = {m[1]: f"{m[2]}/{m[3]}" if m[3] else m[2] for row in rows if (m := FILE.match(row))}
    parents: dict[Place, Place] = {}
    for row in rows:
        if (at := PLACE.match(row)) and at[4]:
            parents.setdefault((at[1], at[2], at[3]), (at[4], at[5], at[6]))
    found: list[tuple[int, ...]] = []
    now: tuple[int, ...] = ()
    for row in rows:
        if at := PLACE.match(row):
            now = _told(at, files, file) or _resolved(at, parents, files, file)
        elif ENTRY.match(row):
            now = ()
        found.append(now)
    return found


def _resolved(at: re.Match, parents: dict[Place, Place], files: dict[str, str], file: str) -> tuple[int, ...]:
    chain: list[Place] = [(at[1], at[2], at[3])]
    into: Place | None = (at[4], at[5], at[6]) if at[4] else None
    while into is not None and into not in chain:
        chain.append(into)
        into = parents.get(into)
    return tuple(dict.fromkeys(int(n) for f, n, _ in chain if int(n) and is_file(files.get(f, ""), file)))


def _told(at: re.Match, files: dict[str, str], file: str) -> tuple[int, ...]:
    """The lines in Triton's comment, `standard.py:191:40 @[ cell:4:18 @[ cell:10:23 ] ]`: files by their last name."""
    comment = at.string.partition("// ")[2]
    if "@[" not in comment:
        return ()
    chain = [part.strip(" ]").rsplit(":", 2) for part in comment.split("@[")]
    name = file.rpartition("/")[2]
    return tuple(dict.fromkeys(int(part[1]) for part in chain if len(part) == 3 and part[0] == name and int(part[1])))


def threads(text: str) -> int:
    """The size of a block as the text demands it (`.reqntid`, `.maxntid`), 0 where it does not."""
    found = THREADS.search(text)
    if not found:
        return 0
    return int(found[1]) * int(found[2] or 1) * int(found[3] or 1)


def files(text: str) -> list[str]:
    """The source files that the text names."""
    found = (FILE.match(row) for row in text.splitlines())
    return [f"{m[2]}/{m[3]}" if m[3] else m[2] for m in found if m]


def entry(text: str) -> str:
    """The symbol of its first kernel, "" where there is none."""
    return next((m[1] for row in text.splitlines() if ".entry" in row and (m := ENTRY.match(row))), "")
