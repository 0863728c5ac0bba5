"""LLVM IR on the user's lines, by its `!DILocation`s. Pure text."""

from __future__ import annotations

import re

from ..reports.inspection import Entry
from .assembly import is_file

METADATA = re.compile(r"^!(\w+(?:\.\w+)*) = (.*)$")
USED = re.compile(r",? !dbg !(\d+)")
FIELD = re.compile(r'\b(line|scope|file|inlinedAt|filename|directory): (?:!(\w+)|"([^"]*)"|(\d+))')
DROPPED = re.compile(r"^(?:; ModuleID|; Function Attrs|source_filename|target |attributes #|declare |!|\s*$)")


def parse(text: str, file: str) -> tuple[Entry, ...]:
    """The functions and globals, each instruction with its source line, metadata and declarations left out.

    >>> parse('define void @f() {\\n  ret void, !dbg !3\\n}\\n!1 = !DIFile(filename: "cell", directory: "")\\n'
    ...       '!2 = distinct !DISubprogram(file: !1)\\n!3 = !DILocation(line: 9, column: 1, scope: !2)', "cell")[1]
    Entry(text='  ret void', line=9, callers=())
    """
    known = {m[1]: _fields(m[2]) for row in text.splitlines() if (m := METADATA.match(row))}
    found = []
    for row in text.splitlines():
        if DROPPED.match(row):
            continue
        used = USED.search(row)
        lines = _lines(known, used[1], file) if used and not row.startswith("define") else ()
        found.append(Entry(USED.sub("", row).rstrip(), lines[0] if lines else 0, lines[1:]))
    return tuple(found)


def _fields(text: str) -> dict[str, str]:
    return {m[1]: m[2] or m[3] or m[4] or "" for m in FIELD.finditer(text)}


def _lines(known: dict[str, dict[str, str]], at: str, file: str) -> tuple[int, ...]:
    found: list[int] = []
    for _ in range(64):
        place = known.get(at, {})
        if is_file(_file(known, place.get("scope", "")), file) and place.get("line", "0") != "0":
            found.append(int(place["line"]))
        at = place.get("inlinedAt", "")
        if not at:
            break
    return tuple(dict.fromkeys(found))


def _file(known: dict[str, dict[str, str]], scope: str) -> str:
    """The file of a scope: its own, or that of the scope around it."""
    for _ in range(64):
        fields = known.get(scope, {})
        if "file" in fields:
            of = known.get(fields["file"], {})
            return f"{of['directory']}/{of['filename']}" if of.get("directory") else of.get("filename", "")
        scope = fields.get("scope", "")
    return ""
