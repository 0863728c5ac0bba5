"""Names that a linker or the loader did not find: readable, and with the likely cause."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

from .. import toolchain
from ..errors import Diagnostic

_SYMBOL = re.compile(
    r"undefined (?:reference to|symbol:) [`'‘]?(?P<symbol>[^\n]+?)['’]?(?:,? version [^\n]+)?(?:\s+\([^\n]*\))?$",
    re.MULTILINE,
)
_OF_PYTHON = re.compile(r"^_?Py[A-Z_]")
_OF_TORCH = re.compile(r"\b(?:at|c10|torch|caffe2)::|^(?:aoti_)?torch_|^THP")
_CUDA = re.compile(r"^_?_?cu(?:da|blas|dnn|rand|sparse|solver|fft)?[A-Z_]|\bc10::cuda::|\bat::cuda::")
OTHERS_STRING = "[abi:cxx11]"


def readable(symbol: str) -> str:
    """`_ZN2at6nosuchEv` as `at::nosuch()`; a name that is not mangled as it is."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return symbol
    demangle.restype, demangle.argtypes = ctypes.c_void_p, (ctypes.c_char_p, *(ctypes.c_void_p,) * 3)
    free.argtypes = (ctypes.c_void_p,)
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.addressof(status))
    if not text or status.value:
        return symbol
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        free(text)


def cause(symbol: str) -> str:
    """Why a readable name is most likely not there, and what to do."""
    if _CUDA.search(symbol):
        return "it belongs to CUDA, which is not linked in: add the library that has it to extra_ldflags"
    if _OF_TORCH.search(symbol):
        version = toolchain.torch().version
        other = (
            " or another standard library (`-D_GLIBCXX_USE_CXX11_ABI`)"
            if OTHERS_STRING in symbol or "std::" in symbol
            else ""
        )
        return f"torch {version}, which runs here, does not have it: the code was written for another torch{other}"
    if symbol.startswith(("std::", "__gnu_cxx::", "__cxxabiv1", "__cxa_", "GLIBCXX")):
        return "this process has another C++ standard library than the compiler: use the compiler that belongs to it"
    return ("it is declared, but nothing defines it: add the source that does to the sources, or its library with "
            "extra_ldflags (in a cell: `//! flags -lNAME`)")  # fmt: skip


def explained(diagnostic: Diagnostic) -> Diagnostic:
    """The same message with its symbol made readable and the cause that fits, if it is about an undefined name."""
    match = re.match(r"undefined reference to (.+?): it is declared", diagnostic.message)
    if not match:
        return diagnostic
    symbol = readable(match[1])
    return replace(diagnostic, message=f"undefined reference to {symbol}: {cause(symbol)}")


def besides_python(log: str) -> tuple[str, ...]:
    """The undefined names in a linker's warnings that are not Python's own, which the process will have."""
    names = (m["symbol"].strip() for m in _SYMBOL.finditer(log))
    return tuple(dict.fromkeys(n for n in names if not _OF_PYTHON.match(n)))


def load_error(text: str) -> str:
    """What the loader said about a library that it could not load, readable and with the cause."""
    match = _SYMBOL.search(text)
    if not match:
        if "GLIBCXX_" in text or "CXXABI_" in text:
            return f"{text}. This process has an older C++ standard library than the compiler: use one that fits"
        return text
    symbol = readable(match["symbol"].strip())
    return f"undefined symbol {symbol}: {cause(symbol)}"
