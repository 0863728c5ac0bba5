"""C++ symbols as people write them, by the C++ library that is in the process already: no program is started."""

from __future__ import annotations

import ctypes
import functools
import re


@functools.cache
def _library() -> ctypes.CDLL | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            found = ctypes.CDLL(name)
            found.__cxa_demangle.restype = ctypes.c_void_p
            found.__cxa_demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
            return found
        except (OSError, AttributeError):
            continue
    return None


def demangle(symbol: str) -> str:
    """The whole declaration that a symbol stands for; the symbol itself where it stands for none.

    >>> demangle("_Z4fillPfi")
    'fill(float*, int)'
    """
    library = _library() if symbol.startswith("_Z") else None
    if library is None:
        return symbol
    status = ctypes.c_int()
    made = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not made:
        return symbol
    text = ctypes.string_at(made).decode(errors="replace")
    _free(made)
    return text


def _free(pointer: int) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes = (ctypes.c_void_p,)
    free(pointer)


def short(symbol: str) -> str:
    """The name with its template arguments, without result and parameters.

    >>> short("_Z4fillIfLi256EEvPT_i")
    'fill<float, 256>'
    """
    whole = re.sub(r"\(anonymous namespace\)", "{anonymous}", demangle(symbol))
    depth, end = 0, len(whole)
    for i, c in enumerate(whole):
        depth += (c == "<") - (c == ">" and whole[i - 1 : i] != "-")
        if c == "(" and depth == 0:
            end = i
            break
    head = whole[:end]
    depth, start = 0, 0
    for i, c in enumerate(head):
        depth += (c == "<") - (c == ">")
        if c == " " and depth == 0 and "operator" not in head[:i]:
            start = i + 1
    return re.sub(r"\((?:int|unsigned int|long|bool)\)(?=-?\d)", "", head[start:])
