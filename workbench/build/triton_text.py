"""The text of a Triton cell, read before anything of it runs: its functions, what it imports, the names that it lacks.

Read with `ast` and the byte code; nothing here imports Triton.
"""

from __future__ import annotations

import ast
import builtins
import dis
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..errors import BuildError, Diagnostic, SchemaError
from ..source import Source

GIVEN = ("torch", "triton", "tl")  # there without import
MODULE_NAMES = frozenset({"__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__",
                          "__annotations__"})  # fmt: skip
USUAL = {"np": "import numpy as np", "F": "import torch.nn.functional as F", "nn": "from torch import nn"}
# What the notebook has under the names that a cell lacks: for messages alone.
_offered: ContextVar[Mapping[str, object]] = ContextVar("offered", default=types.MappingProxyType({}))


@contextmanager
def offering(names: Mapping[str, object]) -> Iterator[None]:
    """Inside, a cell that lacks one of these names is told the line that brings its value.

    >>> with offering({"BLOCK": 128}):
    ...     wb.triton("scale", text)
    """
    before = _offered.set(names)
    try:
        yield
    finally:
        _offered.reset(before)


def offered() -> Mapping[str, object]:
    return _offered.get()


@dataclass(frozen=True)
class Launcher:
    """The Python function that launches: its name, line, parameters in order and how many results it returns.

    `results` is 0 where it returns nothing, -1 where its text does not tell. `absent` marks those results that every
    `return` writes as None; () where a return is no tuple.
    """

    name: str
    line: int
    parameters: tuple[str, ...]
    required: tuple[str, ...]
    results: int
    absent: tuple[bool, ...]
    node: ast.FunctionDef


def padded(source: Source) -> str:
    """The text with its first line where the user counts it, so that every line number is the user's own."""
    return "\n" * (source.first_line - 1) + source.text


def parse(source: Source) -> ast.Module:
    """The syntax tree, with the user's line numbers. BuildError, on its line, where it is no Python."""
    try:
        return ast.parse(padded(source), source.file)
    except SyntaxError as error:
        line = error.lineno or source.first_line
        rows = padded(source).splitlines()
        excerpt = rows[line - 1] if 0 < line <= len(rows) else ""
        told = str(error.msg)
        if re.search(r"\b__global__\b|^\s*//!", source.text, re.MULTILINE):
            told += ": this is CUDA, which goes into a %%cuda cell"
        said = Diagnostic(source.file, line, error.offset or 1, "error", told, excerpt)
        raise BuildError(told, diagnostics=(said,), log=str(said), line=line, file=source.file) from None


def has_backward(source: Source) -> bool:
    """Does a forward's cell hold the backward too?"""
    return any(f.name == "backward" and not is_kernel(f) for f in _functions(parse(source)))


def launcher(source: Source, name: str) -> Launcher:
    """The function of that name, which no `@triton.jit` stands over. SchemaError, with what there is, where none is."""
    tree = parse(source)
    plain = [f for f in _functions(tree) if not is_kernel(f)]
    found = [f for f in plain if f.name == name]
    if not found:
        jitted = next((f for f in _functions(tree) if f.name == name), None)
        if jitted is not None:
            said = (
                f"{name} is a kernel (@triton.jit); the function called {name} is the one that launches it: give "
                "the kernel another name"
            )
            raise SchemaError(said, line=jitted.lineno, file=source.file)
        names = ", ".join(f.name for f in plain) or "none"
        wrapped = next((c for c in tree.body if isinstance(c, ast.ClassDef) and _is_autograd(c)), None)
        if wrapped is not None:
            said = (
                f"no function is called {name!r}; what {wrapped.name} does in its forward belongs into one, without "
                "ctx, which returns the outputs and then what is saved, and its backward into a function called "
                "backward, which takes the gradients of the outputs by name"
            )
            raise SchemaError(said, line=wrapped.lineno, file=source.file)
        does = "takes the op's arguments, launches the kernels and returns the outputs"
        if name == "backward":
            does = "takes arguments, saved tensors and gradients by name and returns a gradient for each tensor"
        cure = "; rename it, or give its name with --entry" if len(plain) == 1 else ""
        raise SchemaError(
            f"no function is called {name!r}: it {does}; functions here that launch: {names}{cure}",
            line=source.first_line, file=source.file,
        )  # fmt: skip
    node = found[-1]
    a = node.args
    if a.vararg or a.kwarg:
        stars = f"*{a.vararg.arg}" if a.vararg else f"**{a.kwarg.arg}"  # type: ignore[union-attr]
        raise SchemaError(f"{name} takes {stars}: spell its arguments out", line=node.lineno, file=source.file)
    positional = [p.arg for p in (*a.posonlyargs, *a.args)]
    keyword = [p.arg for p in a.kwonlyargs]
    optional = positional[len(positional) - len(a.defaults) :] if a.defaults else []
    optional += [n for n, d in zip(keyword, a.kw_defaults, strict=True) if d is not None]
    parameters = (*positional, *keyword)
    required = tuple(p for p in parameters if p not in optional)
    returned = _returned(node)
    return Launcher(name, node.lineno, parameters, required, _results(returned), _absent(returned), node)


def is_kernel(node: ast.FunctionDef) -> bool:
    """Does a `jit` stand over it?"""
    return any("jit" in ast.unparse(d).partition("(")[0].split(".") for d in node.decorator_list)


def _is_autograd(node: ast.ClassDef) -> bool:
    """Is it a `torch.autograd.Function`?"""
    return any(ast.unparse(b).rpartition(".")[2] == "Function" for b in node.bases)


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [n for n in tree.body if isinstance(n, ast.FunctionDef)]


def _returned(function: ast.FunctionDef) -> list[ast.expr | None]:
    """What its own return statements give."""
    found = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return):
            found.append(node.value)
        waiting.extend(ast.iter_child_nodes(node))
    return found


def _results(returned: list[ast.expr | None]) -> int:
    """How many results there are; -1 where the statements differ."""
    counts = {0 if _is_none(v) else len(v.elts) if isinstance(v, ast.Tuple) else 1 for v in returned}
    return counts.pop() if len(counts) == 1 else -1 if counts else 0


def _absent(returned: list[ast.expr | None]) -> tuple[bool, ...]:
    rows = [v.elts for v in returned if isinstance(v, ast.Tuple)]
    if not rows or len(rows) != len(returned) or len({len(r) for r in rows}) > 1:
        return ()
    return tuple(all(map(_is_none, column)) for column in zip(*rows, strict=True))


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


# ---------------------------------------------------------------- imports


def imported(text: str) -> Iterator[tuple[str, int]]:
    """What `import` statements of a text name, as (dotted name, level), those inside functions included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level
            yield from ((f"{node.module}.{a.name}" if node.module else a.name, node.level) for a in node.names)


# ---------------------------------------------------------------- names that the cell lacks


def check_names(source: Source, arguments: Sequence[str] = ()) -> None:
    """SchemaError, on its line, for the first name that the cell uses and neither defines nor imports.

    `arguments` are the op's: a launcher that uses one must take it.
    """
    tree = parse(source)
    if any(isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names) for n in ast.walk(tree)):
        return  # what a star brings is known when it runs
    code = compile(tree, source.file, "exec")
    known = {*GIVEN, *MODULE_NAMES, *vars(builtins), *bound(code)}
    for name, line in sorted(loads(code), key=lambda found: found[1]):
        if name not in known:
            raise lacking(source, tree, name, line, arguments)


def lacking(source: Source, tree: ast.Module, name: str, line: int, arguments: Sequence[str] = ()) -> SchemaError:
    """The error on a name that is not there: which, where, and how to bring it."""
    around = [f for f in _functions(tree) if f.lineno <= line <= (f.end_lineno or line)]
    inside = [f for f in around if is_kernel(f)]
    if around and name in arguments:
        verb = "pass it to" if inside else "write it among the parameters of"
        said = f"{name} is an argument of the op, which {around[0].name} does not take: {verb} {around[0].name}"
        return SchemaError(said, line=line, file=source.file)
    cure = bring(name, _offered.get()[name], in_kernel=bool(inside)) if name in _offered.get() else ""
    if not cure and name in USUAL:
        cure = f"write '{USUAL[name]}' in it"
    if not cure and name in sys.stdlib_module_names:
        cure = f"write 'import {name}' in it"
    if not cure:
        value = f"{name} = tl.constexpr(128)" if inside else f"{name} = 128"
        if any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in ast.walk(tree)):
            value = f"def {name}(...): ..."
        cure = f"define it in the cell ('{value}'), import it there, or pass it as an argument"
    said = (
        f"{name} is not defined in this cell, which sees torch, triton, tl and its own names, nothing of the "
        f"notebook's; {cure}"
    )
    return SchemaError(said, line=line, file=source.file)


def bring(name: str, value: object, *, in_kernel: bool = True) -> str:
    """How to bring a value that the notebook has into a cell: the line to write, where one says it.

    >>> bring("BLOCK", 128)
    "write 'BLOCK = tl.constexpr(128)' in it (that is the notebook's value), or pass it as an argument"
    """
    if isinstance(value, types.ModuleType):
        line = f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
        return f"write '{line}' in it"
    plain = getattr(value, "value", None) if type(value).__name__ == "constexpr" else value
    if isinstance(plain, (bool, int, float, str)):
        boxed = in_kernel or plain is not value
        spelled = json.dumps(plain) if isinstance(plain, str) else repr(plain)
        line = f"{name} = tl.constexpr({spelled})" if boxed else f"{name} = {spelled}"
        return f"write '{line}' in it (that is the notebook's value), or pass it as an argument"
    module = getattr(value, "__module__", "")
    if isinstance(value, type) and module not in ("", "__main__", "builtins"):
        return f"write 'from {module} import {value.__name__}' in it"
    if callable(value):
        return "copy its definition into the cell, or into a module beside the notebook and import that"
    return f"pass it as an argument: it is a {type(value).__name__}"


def loads(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """Every global name that the code and the functions in it read, with its line."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_NAME"}
    module = code.co_name == "<module>"
    line = code.co_firstlineno
    for i in dis.get_instructions(code):
        number = getattr(i, "line_number", i.starts_line)  # starts_line is a bool from Python 3.13 on
        line = number if isinstance(number, int) and not isinstance(number, bool) else line
        if i.opname == "LOAD_GLOBAL" or (i.opname == "LOAD_NAME" and (module or i.argval not in own)):
            yield str(i.argval), line
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from loads(inner)


def bound(code: types.CodeType, *, top: bool = True) -> set[str]:
    """The names that the module defines, by `global` statements in its functions too."""
    kinds = ("STORE_NAME", "STORE_GLOBAL") if top else ("STORE_GLOBAL",)
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in kinds}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= bound(inner, top=False)
    return names


__all__ = ["Launcher", "check_names", "has_backward", "launcher", "offering", "padded", "parse"]
