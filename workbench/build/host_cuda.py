"""The build of a CUDA cell of the host tier: its two halves, each from the store where it was not edited, or the whole.

The host half comes first: which kernels it launches, with which template arguments, the C++ compiler alone knows. Its
stubs tell, and the device half is compiled for these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import BuildError, Diagnostic, ToolchainError
from ..source import Source
from . import (
    architectures,
    cpp,
    cuda_body,
    cuda_reasons,
    diagnostics,
    host_parts,
    nvcc,
    nvcc_flags,
    symbols,
)
from .cuda_pieces import Text
from .cuda_split import Halves, Whole
from .host import Room
from .nvrtc_errors import UNREADABLE
from .resources import Resources
from .result import Build

HEADER = "wb_host_cuda.h"
# A stub is found by its name, and one whose template arguments are hidden types would be hidden too.
_SEEN, _HIDDEN = "#pragma GCC visibility push(default)\n", "#pragma GCC visibility pop\n"
_OF_NVRTC = re.compile(
    r"--?(?:use_fast_math|maxrregcount|ftz|prec-div|prec-sqrt|fmad|lineinfo|generate-line-info|extra-device-vectorization|"
    r"ptxas-options|Xptxas|device-debug|dopt|split-compile|relocatable-device-code)\b|-G$"
)
_UNKNOWN = re.compile(
    r"[‘'](?P<gcc>\w+)[’'] (?:was not declared|has not been declared|does not name a type|is not a (?:class|type))"
    r"|identifier \"(?P<nvcc>\w+)\" is undefined"
)
# What NVRTC is given of <cub/cub.cuh> lacks; one that no CUB has any longer is told with a cure behind it.
_BEYOND = re.compile(r'namespace "cub" has no member "(\w+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Built:
    """What there is to load: `host`, the shared object that torch calls; of two halves also `device`, a cubin, and
    which symbol of it belongs to which stub. `because` says why nvcc compiled the whole, "" for halves.
    """

    host: Build
    device: Build | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)
    because: str = ""

    @property
    def builds(self) -> tuple[Build, ...]:
        return (self.host, self.device) if self.device else (self.host,)

    @property
    def resources(self) -> tuple[Resources, ...]:
        return tuple(r for b in self.builds for r in b.resources)


@dataclass(frozen=True)
class Cell:
    """A cell as it is built: `text` gives its text for a room, wrapper included; `line` is that of its function; `key`
    is torch's dispatch key.
    """

    source: Source
    text: Callable[[Room], str]
    line: int
    arch: str
    flags: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    key: str = "CUDA"


def build(parts: Halves | Whole, cell: Cell) -> Built:
    """Build a cell in its halves, or as a whole.

    >>> build(cuda_split.split(source), Cell(source, text, 9, "sm_90")).device.names
    ('_Z5scaleIfLi256EEvPKT_PS0_i',)

    Raises BuildError on the user's lines; ToolchainError where a compiler is missing.
    """
    if isinstance(parts, Whole):
        return _whole(parts.because, cell)
    try:
        return _halves(parts, cell)
    except BuildError as error:
        because = _needs_the_whole(error, parts)
        if not because:
            raise
        try:
            return _whole(because, cell)
        except ToolchainError:
            raise error from None


def _whole(because: str, cell: Cell) -> Built:
    given = cell.text(Room(HEADER, cell.key, guard=True))
    host = nvcc.compile(
        given, arch=cell.arch, flags=cell.flags, file=cell.source.file, includes=cell.includes, why=because
    )
    return Built(host, because=because)


def _halves(parts: Halves, cell: Cell) -> Built:
    from . import nvrtc

    of_host, of_device = parted(cell.flags)
    file, text, device_text = cell.source.file, Text(parts.host), Text(parts.device)
    place = text.written(file, cell.line)
    given = cell.text(Room(HEADER, cell.key, _SEEN + text.render() + _HIDDEN, place, guard=True))
    try:
        linked = (*of_host, host_parts.path())
        host = text.build(cpp.compile(given, kind="host-cuda", flags=linked, file=file, includes=cell.includes))
    except BuildError as error:
        raise _as_typed(text.error(error), cell.source) from None
    found = symbols.expressions(symbols.exported(host.path), parts.kernels)
    because = next(filter(None, map(cuda_reasons.of_instance, found.values())), "")
    if because:
        return _whole(because, cell)
    if not found:
        return Built(host)
    names = tuple(found.values())
    try:
        device = nvrtc.compile(
            for_nvrtc(device_text.render(), names), arch=cell.arch, names=names, flags=of_device, file=file,
            includes=cell.includes,
        )  # fmt: skip
    except BuildError as error:
        raise _as_typed(_hinted(device_text.error(error), parts), cell.source) from None
    return Built(host, device_text.build(device), dict(zip(found, device.names, strict=True)))


def for_nvrtc(text: str, names: Sequence[str]) -> str:
    """A device half behind the headers that it needs, and the kernels of these names with their template arguments.

    >>> for_nvrtc("template <typename T> __global__ void k(T* x) {}", ["k<__half>"]).splitlines()[:2]
    ['#include "wb_cuda.h"', '#include <cuda_fp16.h>']
    """
    return "\n".join([*cuda_body.prelude(Source(text, "cuda"), re.findall(r"\w+", " ".join(names))), text])


def _as_typed(error: BuildError, source: Source) -> BuildError:
    """An error that shows the user's lines: the compiler saw launches written otherwise, without `<<<>>>`."""
    rows = source.text.split("\n")

    def typed(found: Diagnostic) -> Diagnostic:
        number = found.line - source.first_line
        if found.file != source.file or not 0 <= number < len(rows) or rows[number] == found.excerpt:
            return found
        word = re.match(r"\w*", found.excerpt[max(found.column - 1, 0) :])
        at = re.search(rf"\b{word[0]}\b", rows[number]) if word and word[0] else None
        return replace(found, excerpt=rows[number], column=at.start() + 1 if at else 0)

    said = tuple(map(typed, error.diagnostics))
    return error if said == error.diagnostics else diagnostics.error(said, error.log, otherwise=error.message)


def parted(flags: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags of a cell for the C++ compiler and for NVRTC.

    >>> parted(("-O3", "-DN=4", "--use_fast_math", "-arch=sm_90a", "-Xcompiler", "-fopenmp"))
    (('-O3', '-DN=4', '-fopenmp'), ('-DN=4', '--use_fast_math', '-arch=sm_90a'))
    """
    words = nvcc_flags.units(flags)
    named = architectures.naming(words)
    both = ("-I", "-D", "-U", "-std=")
    host = tuple(h for w in architectures.without(words) if not _OF_NVRTC.match(w) for h in nvcc_flags.for_the_host(w))
    return host, tuple(w for w in words if _OF_NVRTC.match(w) or w.startswith(both) or w in named)


def _needs_the_whole(error: BuildError, parts: Halves) -> str:
    """What one half lacks and the other has, or NVRTC cannot read, so that nvcc may know better; "" where that is not
    what is wrong.
    """
    if "nvcc" in error.log:
        return ""
    beyond = _BEYOND.search(error.message)
    if beyond:
        return f"cub::{beyond[1]}"
    unread = re.search(re.escape(UNREADABLE).replace(r"\{\}", "(.+?)"), error.message)
    name = _unknown(error)
    if unread or not name:
        return unread[1] if unread else ""
    mine = re.compile(rf"\b{name}\b")
    on_device, on_host = ([p.text for p in half if mine.search(p.text)] for half in (parts.device, parts.host))
    functions = [text for text in on_host if _declares(text, name) and not _declares_type(text, name)]
    return f"{name}, which host and device code share" if on_device and on_host and not functions else ""


def _hinted(error: BuildError, parts: Halves) -> BuildError:
    """A kernel that calls a function of the host: the message says how to mark it."""
    name = _unknown(error)
    if name and any(_declares(p.text, name) for p in parts.host):
        error.message += f"\n{name} is host code: mark it `__host__ __device__`, and kernels can use it too"
    return error


def _unknown(error: BuildError) -> str:
    match = _UNKNOWN.search(error.message)
    return (match["gcc"] or match["nvcc"]) if match else ""


def _declares(text: str, name: str) -> bool:
    return bool(re.search(rf"[\w>&*]\s+[&*]?{re.escape(name)}\s*[({{=;<]", text)) or _declares_type(text, name)


def _declares_type(text: str, name: str) -> bool:
    return bool(re.search(rf"\b(?:struct|class|union|using|enum(?:\s+class)?)\s+{re.escape(name)}\b", text))


__all__ = ["Built", "Cell", "build", "for_nvrtc", "parted"]
