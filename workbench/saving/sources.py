"""The user's own texts in a package: as they were run, with the headers beside them, and the flags they ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..build import includes
from ..errors import SaveError
from ..schema import Schema
from ..source import Source, code
from . import flags
from .flags import KERNELS
from .model import Native, SavedOp
from .origin import Origin

_SUFFIX = {"cpp": "cpp", "cuda": "cu"}
_ABSOLUTE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](/[^">\n]+)[">]', re.MULTILINE)


@dataclass(frozen=True)
class Kept:
    """`main` is the cell's own file as others include it, below `csrc/`."""

    main: str
    files: Mapping[str, str]
    origins: Mapping[str, Origin]


def of(source: Source, schema: Schema, slot: str, given: Sequence[str], ran: Mapping[str, str]) -> Kept:
    """The text of a cell and the user's headers that it includes. SaveError for one that lies in a place of its own.

    `ran` are the digests of these when the cell ran: one that is another text by now is a SaveError, too.
    """
    place = where(source)
    absolute = _ABSOLUTE.search(source.text)
    if absolute:
        line = source.first_line + source.text.count("\n", 0, absolute.start())
        said = f'#include "{absolute[1]}" names a file of this machine: put it beside the notebook and include it by its name'
        raise SaveError(said, line=line, file=source.file)
    files: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    for path, now in includes.of(source, given).items():
        relative = os.path.relpath(path, source.path or os.curdir)
        if relative.startswith(os.pardir):
            raise SaveError(
                f"{place} includes {path}, which lies outside the folder of the notebook: copy it there, and include "
                f'"{os.path.basename(path)}"'
            )
        if ran.get(path, now) != now:
            raise SaveError(f"{relative} is another text than when {place} ran, which includes it: run the cell again")
        text = _read(path)
        if found := _ABSOLUTE.search(text):
            raise SaveError(f"{path} includes {found[1]}, a file of this machine: put it beside the notebook")
        files[f"{KERNELS}/{relative.replace(os.sep, '/')}"] = text
        origins[f"{KERNELS}/{relative.replace(os.sep, '/')}"] = Origin.of(text, relative, 1)
    stem, suffix = f"{schema.name}{'.backward' * (slot == 'backward')}", _SUFFIX[source.language]
    name = f"{stem}.{suffix}" if f"{KERNELS}/{stem}.{suffix}" not in files else f"{stem}.cell.{suffix}"
    files[f"{KERNELS}/{name}"] = source.text if source.text.endswith("\n") else source.text + "\n"
    origins[f"{KERNELS}/{name}"] = Origin.of(source.text, source.file, source.first_line)
    return Kept(f"kernels/{name}", files, origins)


def apart(ops: Sequence[SavedOp]) -> tuple[SavedOp, ...]:
    """The ops, the texts of a kernel in a folder of its own where another one has a file of the same name that differs.

    >>> apart([a, b])[0].native[0].files  # each includes a common.h of its own
    {'csrc/kernels/a_forward_cpu/common.h': ..., 'csrc/kernels/a_forward_cpu/a.cpp': ..., 'csrc/a_forward_cpu.cpp': ...}

    Each text includes its header as before, since that lies beside it.
    """
    texts: dict[str, set[str]] = {}
    for path, text in (item for op in ops for n in op.native for item in n.files.items()):
        texts.setdefault(path, set()).add(text)
    differ = {path for path, found in texts.items() if len(found) > 1}
    return tuple(replace(op, native=tuple(_alone(n) if differ & {*n.files} else n for n in op.native)) for op in ops)


def _alone(n: Native) -> Native:
    folder = Path(n.units[0].path).stem.removesuffix("_kernels")
    place = {p: p.replace(KERNELS, f"{KERNELS}/{folder}", 1) for p in n.files if p.startswith(f"{KERNELS}/")}
    files = {}
    for path, text in n.files.items():
        for old, new in place.items() if path not in place else ():
            text = re.sub(rf"(?<![\w/.]){re.escape(old[5:])}(?!\w|\.\w)", new[5:], text)  # without `csrc/`
        files[place.get(path, path)] = text
    units = tuple(replace(u, flags=flags.moved(u.flags, folder)) for u in n.units)
    return replace(n, files=files, units=units, origins={place.get(p, p): o for p, o in n.origins.items()})


def included(source: Source, main: str, space: str, given: Sequence[str] = (), before: Sequence[str] = ()) -> list[str]:
    """The lines that include a cell's text in a namespace of its own.

    Two texts of one library may have a helper of one name, which the linker would take for one function. What the text
    itself includes comes first, outside: inside it is there already.
    """
    outside = includes.elsewhere(source.text, *includes.places(source, given))
    if in_no_namespace(source):
        return [*before, f'#include "{main}"']
    return [
        *(line for name in outside for line in _asked(name)),
        f"namespace {space} {{",
        *before,
        f'#include "{main}"',
        f"}}  // namespace {space}",
    ]


def in_no_namespace(source: Source) -> bool:
    """Does the text add to `std`, which no namespace may be around?"""
    return bool(re.search(r"\bnamespace\s+(?:std|at|c10|torch)\b", code(source.text)))


def _asked(name: str) -> list[str]:
    if re.fullmatch(r"[a-z_0-9]+|(?:stdint|math|string|stdlib|stdio|float|limits|assert)\.h", name):
        return [f"#include <{name}>"]
    return [f"#if __has_include(<{name}>)", f"#include <{name}>", "#endif"]


def where(source: Source) -> str:
    return source.file or "a cell"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SaveError(f"{path} cannot be read: {error}") from None
