"""What gcc, clang, linkers, nvcc and NVRTC say, as diagnostics on the user's own lines, first error on top.

Compilers see a text in which `#line` names the user's files; those names and lines are what the user knows. The whole
output stays in the log of the build. Nothing here runs a compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..errors import BuildError, Diagnostic
from . import host_cures

LINE = re.compile(r'^[ \t]*#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"((?:[^"\\\n]|\\.)*)")?', re.MULTILINE)
MESSAGE = re.compile(  # cell [3]:4:12: error: ...
    r"^(?P<file>.+?):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|internal compiler error|error|warning|note|sorry, unimplemented): (?P<message>.*)$"
)
CUDA_MESSAGE = re.compile(  # cell [3](4): error #20: ...
    r"^(?:(?P<file>.+?)\((?P<line>\d+)\)|At end of source): (?P<severity>catastrophic error|error|warning|remark|note)"
    r"(?: #?[\w-]+)?: (?P<message>.*)$"
)
CUDA_CAME_FROM = re.compile(  # instantiation of "T f(T) [with T=float]" at line 5 of cell [3]
    r"^\s+(?:detected during:? ?)?[\w ]+ of .* at line (?P<line>\d+)(?: of (?P<file>.+?))?$"
)
PROGRAM = re.compile(  # cc1plus: error: ...
    r"^(?:\S*/)?(?P<file>[\w.+-]*(?:g\+\+|gcc|c\+\+|cc1plus|clang[\w.+-]*|nvcc|nvrtc|ptxas|nvlink|ld[.\w]*))\s*: "
    r"(?P<severity>fatal error|fatal|error|warning): (?P<message>.*)$"
)
CAME_FROM = re.compile(
    r"^(?:In file included from |\s+from )?(?P<file>[^:\s][^:]*?):(?P<line>\d+)(?::(?P<column>\d+))?"
    r"(?:[:,]$|:\s+(?:recursively )?required (?:from|by) .*)"
)
NEW_PLACE = re.compile(r"^(?:In file included from |.*: In (?:instantiation|function|member|lambda|constr)|.*: At )")
UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`'‘]?(?P<symbol>.+?)['’]?$")
NO_LIBRARY = re.compile(r"(?:cannot find|unable to find library) -l(?P<name>[^\s:]+)")
NO_HEADER = re.compile(r"^(?:(?P<gcc>\S+): No such file or directory$|'(?P<clang>[^']+)' file not found"
                       r"|(?:cannot|could not) open source file \"(?P<cuda>[^\"]+)\")")  # fmt: skip
BEFORE_NEXT = re.compile(r"^expected (?:.*[‘'][;)}][’'].*before|a [‘'\"];[’'\"])")
HOST_FUNCTION = re.compile(r"^A function (?:without execution space|explicitly marked as a __host__)")
FOR_THE_HOST = "this is a function for the host, and a raw cell holds device code alone: write __device__ before it"
BORING = re.compile(r"^(?:ld returned \d+ exit status|linker command failed)")
MOST_NOTES, MOST_MESSAGES, MOST_FOLDERS = 4, 50, 2
HEADERS_OF = {"Python.h": "Python's own are a package: `apt install python3-dev`, `dnf install python3-devel`"}


@dataclass(frozen=True)
class Lines:
    """The user's lines inside a text with `#line`: what stands on line 4 of "cell [3]".

    `file` names what stands before the first `#line`; `folders` are those of the user's own headers, `system` those of
    all others, where the compiler was told about them.
    """

    text: str
    file: str = "cell"
    folders: tuple[str, ...] = ()
    system: tuple[str, ...] = ()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names that the text gives to the user's files, in order, `file` first."""
        names = [self.file, *(_unquoted(m[2]) for m in LINE.finditer(self.text) if m[2] is not None)]
        return tuple(dict.fromkeys(names))

    @cached_property
    def unlabelled(self) -> str:
        """The text with numbers for those names: the same code in another cell is the same code."""
        numbers = {name: str(n) for n, name in enumerate(self.labels)}

        def number(match: re.Match) -> str:
            return match[0] if match[2] is None else f'#line {match[1]} "{numbers[_unquoted(match[2])]}"'

        return LINE.sub(number, self.text)

    @cached_property
    def _at(self) -> dict[tuple[str, int], str]:
        before: dict[tuple[str, int], str] = {}  # what stands before the first `#line` is not the user's
        found: dict[tuple[str, int], str] = {}
        label, number, lines = self.file, 1, before
        for line in self.text.split("\n"):
            match = LINE.match(line)
            if match:
                number, label = int(match[1]), _unquoted(match[2]) if match[2] is not None else label
                lines = found
                continue
            lines.setdefault((label, number), line.rstrip("\r"))  # a thunk bears its function's lines once more
            number += 1
        return {**before, **found}

    def at(self, file: str, line: int) -> str:
        if (file, line) in self._at or file in self.labels:
            return self._at.get((file, line), "")
        try:
            with open(file, encoding="utf-8", errors="replace") as source:
                return source.read(1 << 22).split("\n")[line - 1]
        except (OSError, IndexError):
            return ""

    def are_of(self, file: str) -> bool:
        """Whether `file` is the user's: a name in the text, or a header in one of the user's folders."""
        return file in self.labels or any(file.startswith(folder.rstrip("/") + "/") for folder in self.folders)

    def last(self) -> tuple[str, int]:
        """The last line that is not blank, as (file, line)."""
        return next((place for place, line in reversed(self._at.items()) if line.strip()), (self.file, 0))

    def mentioning(self, pattern: str) -> tuple[str, int]:
        """The first of the user's lines that matches `pattern`, as (file, line); ("", 0) when there is none."""
        return next((place for place, line in self._at.items() if re.search(pattern, line)), ("", 0))


@dataclass
class _Group:
    """A message with the notes that follow it. `came_from` is the user's line that led to it."""

    main: Diagnostic
    came_from: tuple[str, int, int] | None = None
    notes: list[Diagnostic] = field(default_factory=list)


def parse(log: str, lines: Lines) -> tuple[Diagnostic, ...]:
    """The messages in a compiler's output: errors before warnings, each followed by its notes.

    >>> parse("cell [3]:2:9: error: expected ‘;’ before ‘}’ token", Lines('#line 2 "cell [3]"\\nint f() { return 1 }'))
    (Diagnostic(file='cell [3]', line=2, column=9, severity='error', message='expected ...', excerpt='int f() { ...'),)

    An error inside a system header is put on the user's line that led there. Notes in system headers stay in the log.
    """
    found = [_placed(group, lines) for group in _groups(log, lines)]
    found.sort(key=lambda group: group.main.severity != "error")
    if len(found) > 1:
        found = [g for g in found if not BORING.match(g.main.message)] or found
    unique = {(g.main.file, g.main.line, g.main.message): g for g in reversed(found)}
    kept = [g for g in found if unique[g.main.file, g.main.line, g.main.message] is g][:MOST_MESSAGES]
    return tuple(message for group in kept for message in (group.main, *_notes(group, lines)))


def _groups(log: str, lines: Lines) -> list[_Group]:
    groups: list[_Group] = []
    came_from, above = None, ""
    for text in log.splitlines():
        diagnostic = _read(text, lines)
        if diagnostic is None:
            place = CAME_FROM.match(text)
            if NEW_PLACE.match(text):
                came_from = None
            if groups and (during := CUDA_CAME_FROM.match(text)):
                _during(groups[-1], during, lines)
            elif place:
                at = _label(place["file"], lines), int(place["line"]), int(place["column"] or 0)
                came_from = at if lines.are_of(at[0]) else came_from
            elif groups and re.fullmatch(r"\s+\^~*\s*", text):
                groups[-1].main = _with_column(groups[-1].main, text, above)
            above = text
        elif diagnostic.severity == "note":
            if groups:
                groups[-1].notes.append(diagnostic)
        else:
            groups.append(_Group(diagnostic, came_from))
    return groups


def _during(group: _Group, place: re.Match, lines: Lines) -> None:
    """nvcc and NVRTC say after a message which instantiation led to it."""
    file = _label(place["file"] or group.main.file, lines)
    if group.came_from is None and lines.are_of(file):
        group.came_from = file, int(place["line"]), 0


def _read(text: str, lines: Lines) -> Diagnostic | None:
    undefined, library = UNDEFINED.search(text), NO_LIBRARY.search(text)
    if undefined:
        return _undefined(undefined["symbol"], lines)
    if library:
        file, line = lines.mentioning(rf"//!.*-l\s*{re.escape(library['name'])}\b")
        message = f"the linker cannot find the library {library['name']} (-l{library['name']})"
        return _diagnostic(file or lines.file, line, 0, "error", message, lines)
    match = MESSAGE.match(text) or CUDA_MESSAGE.match(text)
    if match:
        column = int(match.groupdict().get("column") or 0)
        file, line = (_label(match["file"], lines), int(match["line"])) if match["file"] else lines.last()
        return _diagnostic(file, line, column, match["severity"], match["message"], lines)
    match = PROGRAM.match(text)
    if match and not match["message"].startswith("linker command failed"):
        option = re.search(r"option:? [‘'](-[^’']+)[’']|argument:? '(-[^']+)'|option (-\S+) found", match["message"])
        named = re.escape(next(filter(None, option.groups()))) if option else ""
        place = lines.mentioning(rf"//!.*{named}(?!\S)") if named else ("", 0)
        return _diagnostic(place[0] or match["file"], place[1], 0, match["severity"], match["message"], lines)
    return None


def _diagnostic(file: str, line: int, column: int, severity: str, message: str, lines: Lines) -> Diagnostic:
    severity = {"remark": "note", "warning": "warning", "note": "note"}.get(severity, "error")
    missing = NO_HEADER.match(message)
    if severity == "error" and missing:
        name = missing["gcc"] or missing["clang"] or missing["cuda"]
        hint = HEADERS_OF.get(name, "`flags -IFOLDER` adds one")
        message = f"there is no header {name}: looked in {_listed([*lines.folders, *_others(lines)])} ({hint})"
    if severity == "error" and HOST_FUNCTION.match(message):
        message = FOR_THE_HOST
    excerpt = lines.at(file, line) if line else ""
    told = host_cures.told(message, excerpt) if severity == "error" else message
    return Diagnostic(file, line, column, severity, told, excerpt)


def _others(lines: Lines) -> tuple[str, ...]:
    """The folders that are not the user's; of many, how many: the log names them."""
    if len(lines.system) > MOST_FOLDERS:
        return (f"{len(lines.system)} folders of CUDA, which `.log` names",)
    return lines.system or ("the compiler's own folders",)


def _listed(places: Sequence[str]) -> str:
    return f"{', '.join(places[:-1])} and in {places[-1]}" if len(places) > 1 else places[0]


def _undefined(symbol: str, lines: Lines) -> Diagnostic:
    name = re.sub(r"<.*>", "", symbol.partition("(")[0]).rpartition("::")[2].strip()
    file, line = lines.mentioning(rf"(?<!\w){re.escape(name)}\s*[(<]") if name else ("", 0)
    message = f"undefined reference to {symbol}: it is declared, but nothing defines it (`flags -lNAME` adds a library)"
    return _diagnostic(file or lines.file, line, 0, "error", message, lines)


def _label(file: str, lines: Lines) -> str:
    return lines.file if file in {"<stdin>", "-", "<source>"} else file


def _with_column(diagnostic: Diagnostic, caret: str, above: str) -> Diagnostic:
    """nvcc and NVRTC give no column, but a caret under the line."""
    shift = above.find(diagnostic.excerpt.strip()) if diagnostic.excerpt.strip() else -1
    if diagnostic.column or shift < 0:
        return diagnostic
    indent = len(diagnostic.excerpt) - len(diagnostic.excerpt.lstrip())
    return replace(diagnostic, column=caret.index("^") - shift + indent + 1)


def _placed(group: _Group, lines: Lines) -> _Group:
    """The group with its main message on a line that the user wrote, if one led there."""
    main = group.main
    if main.severity == "error" and main.column and BEFORE_NEXT.match(main.message):
        main = _on_the_line_before(main, lines)
    if main.line and not lines.are_of(main.file):
        asked = next((n for n in group.notes if lines.are_of(n.file) and "requested here" in n.message), None)
        place = group.came_from or ((asked.file, asked.line, asked.column) if asked else None)
        if place:
            message = f"{main.message} (in {os.path.basename(main.file)}:{main.line})"
            main = Diagnostic(*place, main.severity, message, lines.at(*place[:2]))
    return replace(group, main=main)


def _on_the_line_before(main: Diagnostic, lines: Lines) -> Diagnostic:
    """gcc reports a missing semicolon at the token that follows it, which is often the next line's first."""
    if main.excerpt[: main.column - 1].strip():
        return main
    number = main.line - 1
    while number and re.fullmatch(r"\s*(?://.*)?", lines.at(main.file, number)) and (main.file, number) in lines._at:
        number -= 1
    code = re.sub(r"\s*(?://.*)?$", "", lines.at(main.file, number))
    return replace(main, line=number, column=len(code) + 1, excerpt=lines.at(main.file, number)) if code else main


def _notes(group: _Group, lines: Lines) -> Iterator[Diagnostic]:
    mine = [note for note in group.notes if lines.are_of(note.file)]
    place = group.came_from
    if place and lines.are_of(group.main.file) and place[:2] != (group.main.file, group.main.line):
        mine.insert(0, Diagnostic(*place, "note", "required from here", lines.at(*place[:2])))
    yield from mine[:MOST_NOTES]


def error(diagnostics: Sequence[Diagnostic], log: str, *, otherwise: str) -> BuildError:
    """The BuildError of a failed compiler run: its first error, on its line, and how many more there are.

    `otherwise` is said when the output holds no message at all.
    """
    errors = [d for d in diagnostics if d.severity == "error"]
    if not errors:
        last = "\n".join(line for line in log.strip().splitlines()[-3:])
        return BuildError(f"{otherwise}{': ' if last else ''}{last}", diagnostics=tuple(diagnostics), log=log)
    first = errors[0]
    message = first.message
    if first.excerpt.strip():
        code = first.excerpt.lstrip().rstrip()
        shift = len(first.excerpt) - len(first.excerpt.lstrip())
        message += f"\n    {code}" + (f"\n    {' ' * (first.column - 1 - shift)}^" if first.column > shift else "")
    if len(errors) > 1:
        more = f"{len(errors) - 1} more error{'s' if len(errors) > 2 else ''}"
        message += f"\n({more}; `.log` of this exception holds the whole output)"
    return BuildError(message, diagnostics=tuple(diagnostics), log=log, line=first.line, file=first.file)


def _unquoted(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


__all__ = ["Lines", "error", "parse"]
