"""NVRTC's messages, turned towards the user: names that were asked for, missing headers, functions for the host."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace

from ..errors import Diagnostic
from ..source import code
from . import cuda_cures, cuda_headers, diagnostics, ptxas
from .diagnostics import Lines

_OF_NAMES = re.compile(r"^__nv_name_map\(\d+\): error: (.*)\n  #pragma nv_mangled_name (.*)\n.*\n", re.MULTILINE)
_OF_POINTER = re.compile(r"expression must have (?:pointer-to-)?class(?: or struct)? type")
_OF_TENSOR = re.compile(r"\.(?:sizes?|shape|numel|strides?|dim|data_ptr)\b")
_BUILT_IN = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "__syncthreads", "__syncwarp", "__shfl_sync",
             "__shfl_down_sync", "__shfl_up_sync", "__shfl_xor_sync", "__ballot_sync", "atomicAdd", "atomicMax",
             "atomicMin", "atomicCAS", "rsqrtf", "fmaxf", "fminf", "__expf", "printf")  # fmt: skip
_INCLUDE = r"^\s*#\s*include\s*<{}>"
_LET = r"^\s*//! (?!tune\b)(?:[\w*]+\s*,\s*)*{}\s*(?:,[\w\s*,]*)?=[^=]"
_TWICE = re.compile(r'(variable "(\w+)" has already been defined) \(previous definition at line \d+ of prelude\)')
_UNCLOSED = re.compile(r"closing brace of template definition not found")
LAUNCHES = (
    "this is a function for the host: in a raw cell the lines '//! grid' and '//! block' launch the kernels, so leave "
    "it out; or leave these out, and let it take and return Tensor"
)
UNREADABLE = "NVRTC cannot read <{}>"
_FOR_DEVICE = re.compile(r"__(?:global|device)__")


def parse(log: str, lines: Lines) -> tuple[Diagnostic, ...]:
    """The messages in a log of NVRTC; see `diagnostics.parse`."""
    asked: set[str] = set()

    def of_name(said: re.Match) -> str:
        """A message about a name that was asked for, as one about the function."""
        if said[1].startswith("Error in parsing name expression"):
            return ""
        name = readable(said[2])
        asked.add(f"{name}: {said[1]}")
        file, line = ptxas.defined(name.partition("<")[0], lines)
        return f"{file or lines.file}({line}): error: {name}: {said[1]}\n"

    found = dict.fromkeys(_included(d, lines) for d in diagnostics.parse(_OF_NAMES.sub(of_name, log), lines))
    ordered = _causes_first(_hosts_in_place(list(found), lines), asked)
    return tuple(_with_cure(_with_package(d), lines) for d in ordered)


def _causes_first(found: Sequence[Diagnostic], asked: set[str]) -> list[Diagnostic]:
    """What was asked for comes after what is wrong in the text, and what breaks all else, before."""

    def place(said: Diagnostic) -> int:
        if said.severity != "error":
            return 3
        return 0 if _UNCLOSED.match(said.message) or cuda_cures.one_type(said) else 2 if said.message in asked else 1

    groups: list[list[Diagnostic]] = []
    for said in found:
        if said.severity == "note" and groups:
            groups[-1].append(said)
        else:
            groups.append([said])
    return [said for group in sorted(groups, key=lambda g: place(g[0])) for said in group]


def _included(said: Diagnostic, lines: Lines) -> Diagnostic:
    """An error in a header of CUDA's, of which NVRTC does not say who included it: on the line of the include.

    Where the text names another one of that library, on the line of that.
    """
    if said.severity != "error" or not said.file.startswith("/") or lines.are_of(said.file):
        return said
    parts = said.file.split("/")
    names = [re.escape("/".join(parts[-n:])) for n in range(1, len(parts))]
    names += [
        rf"{re.escape(folder)}/[^>]*" for folder in ("thrust", "cub", "cuda", "cooperative_groups") if folder in parts
    ]
    for name in names:
        file, line = lines.mentioning(_INCLUDE.format(name))
        if line:
            excerpt = lines.at(file, line)
            header = excerpt.partition("<")[2].partition(">")[0]
            why = "it is for the host, from where functions on Tensor call it" if "thrust" in parts else said.message
            told = f"{UNREADABLE.format(header)}: {why}"
            return replace(said, file=file, line=line, column=excerpt.index("<") + 1, message=told, excerpt=excerpt)
    return said


def readable(name: str) -> str:
    """A kernel's name without the type that says which of several functions of that name is meant.

    >>> readable("(void(*)(const float*, int))mine::scale")
    'mine::scale'
    """
    return re.sub(r"^\(.*\)\s*(?=[\w:]+$)", "", name.strip())


def _with_package(said: Diagnostic) -> Diagnostic:
    """A missing header of CUDA's, with the package that brings it."""
    missing = re.match(r"there is no header (\S+):", said.message)
    package = cuda_headers.package_of(missing[1]) if missing else ""
    return replace(said, message=f"{said.message}. `pip install {package}` brings it") if package else said


def _with_cure(said: Diagnostic, lines: Lines) -> Diagnostic:
    """What is the host's alone, with what device code has instead; a misspelt name, with what was probably meant."""
    if said.severity != "error":
        return said
    if said.message == diagnostics.FOR_THE_HOST and _launches(lines, said):
        return replace(said, message=LAUNCHES)
    cure = cuda_cures.cure(said)
    if _OF_POINTER.search(said.message) and _OF_TENSOR.search(said.excerpt):
        cure = "a pointer knows no sizes: name them in directives, '//! n = x.numel()', and take n"
    unknown = re.match(r'identifier "(\w+)" is undefined', said.message)
    if unknown and not cure and lines.mentioning(_LET.format(unknown[1]))[1]:
        cure = f"a line names it for parameters alone: take 'int {unknown[1]}', or write 'tune {unknown[1]} = 16, 32'"
    twice = _TWICE.match(said.message)
    if twice:
        return replace(said, message=f"{twice[1]}; the line 'tune {twice[2]}' is one: leave this out")
    if unknown and not cure:
        near = difflib.get_close_matches(unknown[1], [*_BUILT_IN, *_words(lines, unknown[1])], 1, 0.75)
        cure = f"did you mean {near[0]!r}?" if near else ""
    return replace(said, message=f"{said.message.rstrip(':')}; {cure}") if cure else said


def _launches(lines: Lines, host: Diagnostic) -> bool:
    """Does this function hold a `<<<`?"""
    body = code("\n".join(lines.at(host.file, n) for n in range(host.line, host.line + 200)))
    depth = 0
    for m in re.finditer(r"[{}]|<<<", body):
        depth += {"{": 1, "}": -1}.get(m[0], 0)
        if m[0] == "<<<" or not depth:
            return m[0] == "<<<"
    return False


def _words(lines: Lines, other_than: str) -> list[str]:
    """The names in the user's text."""
    found = re.findall(r"[A-Za-z_]\w+", code(lines.text))
    return [w for w in dict.fromkeys(found) if w != other_than]


def _hosts_in_place(found: Sequence[Diagnostic], lines: Lines) -> list[Diagnostic]:
    """A function without __device__ is no error when all else is right, so it is told after what is wrong elsewhere.

    Before what is wrong inside it, though: that is host code.
    """
    hosts = [d for d in found if d.message == diagnostics.FOR_THE_HOST]
    at = {(d.file, d.line) for d in hosts}

    def inside(said: Diagnostic) -> bool:
        for number in range(said.line, 0, -1):
            if (said.file, number) in at:
                return True
            if _FOR_DEVICE.search(lines.at(said.file, number)):
                return False
        return False

    others = [d for d in found if d not in hosts]
    return [*(d for d in others if not inside(d)), *hosts, *(d for d in others if inside(d))] if hosts else others
