"""What an error of Triton's own, or of Python's in a Triton cell, most likely means."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

from .. import gpu
from .triton_warmed import Warmed

# (what Triton, torch or Python says, what it most likely means)
MEANT = (
    ("_local_scalar_dense", ": it asks a tensor for its value"),
    (r"'function' object is not subscriptable$", ": does the kernel lack @triton.jit?"),
    (r"Expected dtype \[.*'fp32'.*\] but got \w+", "; convert it first, with .to(tl.float32)"),
    ("incompatible dimensions at index|Cannot broadcast, rank mismatch",
     "; v[:, None] and v[None, :] give a dimension more, and keep_dims=True keeps that of a reduction"),
    ("'tensor' object has no attribute '__r?pow__'",
     ": Triton has no **; write v * v, or libdevice.pow of triton.language.extra"),
    ("'tensor' object has no attribute 'astype'", "; did you mean 'to'?"),
    ("unsupported tensor index",
     "; a tensor takes None and : alone. tl.sum(tl.where(i == 0, v, 0)) is one element of it"),
    ("Ternary expression with dynamic condition|conditional.*tensor.*scalar",
     "; tl.where(condition, a, b) chooses for each element"),
    ("must be real number, not tensor", ": a function of Python's math; tl has its own, such as tl.exp"),
    ("invalid operands of type pointer", ": a tensor arrives as a pointer; tl.load(...) brings its values"),
    ("unsupported AST node type: (Break|Continue)",
     ": Triton knows no break and no continue; put the condition into a while, or into a mask"),
    (r"\] is not string", ": print and tl.device_print take a text first"),
    ("Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available",
     ": no GPU is here; what a cell makes outside of its functions belongs into another cell"),
)  # fmt: skip
# What other libraries have, and `tl` under another name.
OTHERWISE = {"inf": "float('inf')", "relu": "tl.maximum(v, 0.0)", "concatenate": "tl.cat"}
OF_COMPILED = ("_init_handles", "asm", "metadata", "n_regs", "n_spills", "run")  # what a launch's result is asked for


def plain(text: str) -> str:
    """`AttributeError("...")`, as Triton quotes what it met, without its wrapping."""
    quoted = re.fullmatch(r"\w+(?:Error|Exception)(?:Impl)?\((['\"])(.*)\1\)", text.strip(), re.DOTALL)
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
        return _near(name, owner)
    if isinstance(error, AssertionError) and re.search(r"is_cuda|\bcuda\b", text) and not gpu.present():
        return ": no GPU is here, so Triton's interpreter runs it on tensors of the CPU"
    wanted = re.search(r"cannot import name '(\w+)'", text) if isinstance(error, ImportError) else None
    if wanted and isinstance(error, ImportError):
        return _near(wanted[1], sys.modules.get(error.name or ""))
    for said, meant in MEANT:
        if re.search(said, text):
            return meant
    return ""


def _near(name: str, owner: object) -> str:
    near = difflib.get_close_matches(name, [n for n in dir(owner) if not n.startswith("_")], 1)
    if getattr(owner, "__name__", "").startswith("triton.language"):
        if name == "libdevice" or name in _libdevice():
            shown = f"libdevice.{name}(...)" if name != "libdevice" else "libdevice.tanh(...)"
            return f"; write 'from triton.language.extra import libdevice', then {shown}"
        if name in OTHERWISE:
            return f"; write {OTHERWISE[name]}"
    return f"; did you mean {near[0]!r}?" if near else ""


def _libdevice() -> list[str]:
    from triton.language.extra import libdevice

    return dir(libdevice)


def called(text: str, node: ast.AST) -> str:
    """Of "load() got an unexpected keyword argument 'msk'" at such a call: which function it is, and what was meant.

    >>> called("load() got an unexpected keyword argument 'msk'", node)
    "tl.load() got an unexpected keyword argument 'msk'; did you mean 'mask'?"
    """
    import triton.language as tl

    lost = re.search(r"got an unexpected keyword argument '(\w+)'", text)
    if not lost or not isinstance(node, ast.Call):
        return text
    spelled = ast.unparse(node.func)
    function: Any = tl if spelled.startswith("tl.") else getattr(tl, "tensor", None)
    for part in spelled.split(".")[1:]:
        function = getattr(function, part, None)
    named = f"{spelled}() {lost[0]}"
    try:
        known = list(inspect.signature(getattr(function, "fn", function)).parameters)
    except (TypeError, ValueError):
        return named
    near = difflib.get_close_matches(lost[1], known, 1)
    offered = ", ".join(n for n in known if not n.startswith("_") and n != "self")
    return named + (f"; did you mean {near[0]!r}?" if near else f"; it takes {offered}" if offered else "")


def branched(text: str, source: str) -> str:
    """Of "f is not defined" in a kernel that sets it: where it may be set alone."""
    lost = re.fullmatch(r"(\w+) is not defined", text)
    if not lost or not re.search(rf"^\s*{lost[1]}\s*(:[^=]*)?=[^=]", source, re.MULTILINE):
        return text
    return f"{text} on each way here: give it a value before the `if` or the loop that sets it"


def unbound(name: str, known: Sequence[str]) -> str:
    """What a launcher's parameter was probably meant to be, which no argument of the op is called like."""
    gradients = [n for n in known if n.startswith("grad_")]
    if name == "ctx":
        return f"there is none here: name what it takes, of {', '.join(known)}"
    if name.startswith("grad") and len(gradients) > 1:
        return f"the gradients are {', '.join(gradients)}"
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"the arguments are {', '.join(known)}"


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


__all__ = ["branched", "called", "foreign", "hint", "plain", "unbound"]
