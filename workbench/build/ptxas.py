"""What ptxas says, in the log of NVRTC or of nvcc: what kernels take of the machine, and its own errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import Diagnostic
from .diagnostics import Lines
from .resources import Resources

_SAID = re.compile(
    r"Compiling entry function '(?P<entry>[^']+)'"
    r"|Function properties for '?(?P<function>[^\s']+)"
    r"|(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r"|Used (?P<registers>\d+) registers(?P<rest>.*)"
)
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")
_MESSAGE = re.compile(
    r"^ptxas (?:(?P<file>.*?), line (?P<line>\d+); )?(?P<severity>fatal|error|warning)\s*: (?P<message>.*)$",
    re.MULTILINE,
)
_TOO_MUCH_SHARED = re.compile(
    r"Entry function '(?P<symbol>[^']+)' uses too much shared data \((?P<got>\w+) bytes, (?P<most>\w+)"
)
_NO_FUNCTION = re.compile(r"Unresolved extern (?P<what>function|variable) '(?P<symbol>[^']+)'")
_IN_FUNCTION = re.compile(r"function '(?P<symbol>[^']+)'")
_FILE = re.compile(r'^\s*\.file\s+(\d+) "([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+) (\d+) (\d+)")


def resources(log: str, kernels: Mapping[str, str] | None = None) -> tuple[Resources, ...]:
    """One entry for each kernel that `-v` told of. `kernels` says which symbols, in which order, and their names.

    >>> resources(log, {"_Z5scalePf": "scale"})
    (Resources(kernel='scale', registers=10, spill_stores=0, spill_loads=0, stack=0, shared=0, constant=0),)

    What functions spill that were not inlined counts for every kernel: any of them may call them.
    """
    found: dict[str, Resources] = {}
    entry, about, stores, loads = "", "", 0, 0
    for said in _SAID.finditer(log):
        if said["entry"]:
            entry = said["entry"]
            found[entry] = Resources(entry, 0)
        elif said["function"]:
            about = said["function"]
        elif said["stack"] and about in found:
            found[about] = replace(found[about], spill_stores=int(said["stores"]), spill_loads=int(said["loads"]),
                                   stack=int(said["stack"]))  # fmt: skip
        elif said["stack"]:
            stores, loads = stores + int(said["stores"]), loads + int(said["loads"])
        elif entry:
            shared = sum(int(n) for pair in _SHARED.findall(said["rest"]) for n in pair if n)
            constant = sum(map(int, _CONSTANT.findall(said["rest"])))
            found[entry] = replace(found[entry], registers=int(said["registers"]), shared=shared, constant=constant)
    wanted = {symbol: symbol for symbol in found} if kernels is None else kernels
    return tuple(
        replace(r, kernel=name, spill_stores=r.spill_stores + stores, spill_loads=r.spill_loads + loads)
        for symbol, name in wanted.items()
        if (r := found.get(symbol))
    )


def diagnostics(log: str, lines: Lines, ptx: str = "") -> tuple[Diagnostic, ...]:
    """Its errors and warnings, errors first, on the lines of the kernels or, for inline assembly, of the `asm`.

    `ptx` is the text that ptxas was given, with `.loc` lines (-lineinfo); without it assembly errors have no line.
    """
    found = []
    for said in _MESSAGE.finditer(log):
        message, severity = said["message"], "warning" if said["severity"] == "warning" else "error"
        if said["severity"] == "fatal" and message.startswith("Ptx assembly aborted"):
            continue
        file, line = located(ptx, int(said["line"])) if said["line"] and ptx else ("", 0)
        if said["line"]:
            message = f"inline assembly: {message}"
        else:
            message, symbol = _in_words(message)
            file, line = defined(symbol, lines) if symbol else ("", 0)
        excerpt = lines.at(file, line) if line else ""
        found.append(Diagnostic(file or lines.file, line, 0, severity, message, excerpt))
    found.sort(key=lambda d: d.severity != "error")
    return tuple(dict.fromkeys(found))


def _in_words(message: str) -> tuple[str, str]:
    """(what is to be said, the symbol that it is about)"""
    shared, missing = _TOO_MUCH_SHARED.search(message), _NO_FUNCTION.search(message)
    if shared:
        name, got, most = plain_name(shared["symbol"]), int(shared["got"], 16), int(shared["most"], 16)
        told = f"{name} declares {got} bytes of __shared__ memory, {most} are the most that a declaration may take: "
        return f"{told}make it 'extern __shared__', and say how much in '//! shared = ...'", shared["symbol"]
    if missing:
        name = plain_name(missing["symbol"])
        return f"{name} is declared, but nothing defines it in device code", missing["symbol"]
    named = _IN_FUNCTION.search(message)
    if named:
        return message.replace(named["symbol"], plain_name(named["symbol"])), named["symbol"]
    return message, ""


def defined(symbol: str, lines: Lines) -> tuple[str, int]:
    """The user's line that names the function of a symbol, ("", 0) when none does."""
    name = re.escape(plain_name(symbol).rpartition("::")[2])
    return lines.mentioning(rf"(?<![\w.]){name}\s*\(") if name else ("", 0)


def plain_name(symbol: str) -> str:
    """The name in a mangled symbol, without template arguments and parameters.

    >>> plain_name("_ZN4mine7rmsnormIfLi256EEEvPKT_PS1_")
    'mine::rmsnorm'
    """
    mangled = re.match(r"_ZN?L?K?(?=\d)", symbol)
    if not mangled:
        return symbol
    names, rest = [], symbol[mangled.end() :]
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        names.append(rest[length.end() : end])
        rest = rest[end:] if mangled[0].startswith("_ZN") else ""
    return "::".join(n for n in names if not n.startswith("_GLOBAL__N"))


def located(ptx: str, line: int) -> tuple[str, int]:
    """The (file, line) of the source that line `line` of the PTX was made of, ("", 0) when it does not say."""
    files = dict(_FILE.findall(ptx))
    for text in reversed(ptx.split("\n")[:line]):
        found = _LOC.match(text)
        if found and found[1] in files:
            return files[found[1]], int(found[2])
        if re.match(r"\s*\.(?:visible|entry|func|weak)\b", text):
            break
    return "", 0


__all__: Sequence[str] = ["defined", "diagnostics", "located", "plain_name", "resources"]
