"""The functions that a shared object offers, read from the file: nothing is loaded. 64-bit ELF."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from ..errors import BuildError
from .undefined import readable

_DYNSYM, _FUNC = 11, 2


def exported(path: str) -> tuple[str, ...]:
    """The names of the functions that the shared object at `path` defines for others, as they are in it.

    >>> exported(build.path)
    ('_Z5scaleIfLi256EEvPKT_PS0_i', 'wb_register', 'wb_unregister')
    """
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise BuildError(f"{path} is no 64-bit shared object")
    (offset,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    found = []
    for s in sections:
        if s[1] != _DYNSYM:
            continue
        texts = sections[s[6]][4]
        for at in range(s[4], s[4] + s[5], s[9]):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section and info & 15 == _FUNC:
                found.append(data[texts + name : data.index(b"\0", texts + name)].decode())
    return tuple(sorted(found))


def expressions(symbols: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The symbols among these that are functions of those (qualified) names, each as a C++ expression.

    >>> expressions(["_Z5scaleIfLi256EEvPKT_PS0_i", "wb_register"], ["scale"])
    {'_Z5scaleIfLi256EEvPKT_PS0_i': 'scale<float, 256>'}
    """
    found = {}
    for symbol in symbols:
        text = readable(symbol)
        for name in names:
            if symbol == name.rpartition("::")[2]:  # extern "C"
                found[symbol] = name
            match = re.match(rf"(?:void )?({re.escape(name)})(?=[<(])", text)
            if symbol.startswith("_Z") and match:
                found[symbol] = match[1] + _as_written(_arguments(text[match.end() :]))
    return found


def _as_written(arguments: str) -> str:
    """`long` is what the C++ compiler calls an int64_t; in device code that is a `long long`."""
    return re.sub(r"(?<!long )\blong\b(?! (?:long|double))", "long long", arguments)


def _arguments(text: str) -> str:
    """`<float, (N)3>(float const*)` without what follows the template's arguments."""
    if not text.startswith("<"):
        return ""
    depth = round_ = 0
    for at, c in enumerate(text):
        round_ += (c == "(") - (c == ")")
        depth += ((c == "<") - (c == ">")) * (not round_)
        if not depth:
            return text[: at + 1]
    return text


__all__ = ["exported", "expressions"]
