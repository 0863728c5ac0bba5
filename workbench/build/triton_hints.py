"""What an error of Triton's own, or of Python's in a Triton cell, most likely means."""

from __future__ import annotations

import difflib
import re
import sys
from typing import Any

from .. import gpu
from .triton_warmed import Warmed

OF_COMPILED = (
    "_init_handles",
    "asm",
    "metadata",
    "n_regs",
    "n_spills",
    "run",
)  # what the result of a launch is asked for


def plain(text: str) -> str:
    """`AttributeError("...")`, as Triton quotes what it met, without its wrapping."""
    quoted = re.fullmatch(r"\w+(?:Error|Exception)\((['\"])(.*)\1\)", text.strip(), re.DOTALL)
    return quoted[2] if quoted else text


def hint(text: str, error: BaseException | None = None) -> str:
    """What was probably meant, to stand behind the message; "" where nothing comes to mind.

    >>> hint("module 'triton.language' has no attribute 'program_ids'")
    "; did you mean 'program_id'?"
    """
    lost = re.search(r"module '([\w.]+)' has no attribute '(\w+)'", text)
    owner: object = sys.modules.get(lost[1]) if lost else None
    name = lost[2] if lost else ""
    if isinstance(error, AttributeError) and error.name in OF_COMPILED and isinstance(error.obj, Warmed | None):
        return ": Triton's interpreter compiles nothing, so a launch gives None there; op.inspect() shows the PTX"
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        owner, name = error.obj, error.name
    if owner is not None:
        near = difflib.get_close_matches(name, [n for n in dir(owner) if not n.startswith("_")], 1)
        return f"; did you mean {near[0]!r}?" if near else ""
    if isinstance(error, AssertionError) and re.search(r"is_cuda|\bcuda\b", text) and not gpu.present():
        return ": no GPU is here, so Triton's interpreter runs it on tensors of the CPU"
    if "_local_scalar_dense" in text:
        return ": it asks a tensor for its value"
    if text.endswith("'function' object is not subscriptable"):
        return ": does the kernel lack @triton.jit?"
    return ""


def foreign(text: str, function: Any) -> tuple[str, int]:
    """Of "Unsupported function referenced" the function that a kernel cannot call, and the line that does."""
    named = re.search(r"Unsupported function referenced: <(?:built-in method|function|class) '?([\w.]+)", text)
    name = named[1].rpartition(".")[2] if named else ""
    for number, row in enumerate(function.src.split("\n") if name else ()):
        call = re.search(rf"[\w.]*\b{name}\s*\(", row)
        if call:
            spelled = call[0].rstrip("( ")
            said = f"a kernel cannot call {spelled}, which is Python's"
            import triton.language as tl

            near = difflib.get_close_matches(name, [n for n in dir(tl) if not n.startswith("_")], 1)
            return said + (f"; did you mean tl.{near[0]}?" if near else ""), function.starting_line_number + number
    return "", 0


__all__ = ["foreign", "hint", "plain"]
