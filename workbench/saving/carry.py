"""A Python function of the notebook as text that stands in a file: its source, and what it needs besides.

What can be written down goes along (imports, constants, helper functions); anything else is a SaveError that names it.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import SaveError
from ..register.traces import names
from . import decorators
from .modules import OURS, PLAIN, importable
from .origin import Origin


@dataclass
class Carried:
    """The pieces of one module, each once: imports, constants and helpers, then the functions that were asked for."""

    imports: dict[str, str] = field(default_factory=dict)  # name -> statement
    constants: dict[str, str] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    taken: dict[str, object] = field(default_factory=dict)  # name -> the value that it stands for
    ops: dict[str, object] = field(default_factory=dict)  # other ops that the functions call, by the name used

    def render(self) -> str:
        """The module's text behind its docstring."""
        own = sorted(set(self.imports.values()), key=_import_order)
        blocks = ["\n".join(own)] if own else []
        if self.constants:
            blocks.append("\n".join(f"{n} = {v}" for n, v in self.constants.items()))
        text = "\n\n".join(blocks)
        bodies = [*self.helpers.values(), *self.functions.values()]
        return "\n\n\n".join(filter(None, [text, *bodies])) + "\n"


def carry(wanted: Mapping[str, Callable], what: str, *, rename: Mapping[str, str] | None = None) -> Carried:
    """The functions `wanted`, by the name that each shall have, with all that they look up.

    >>> print(carry({"rmsnorm": reference}, "lab::rmsnorm").render())
    import torch
    from torch import Tensor
    ...

    `what` begins the messages. Raises SaveError for a lambda, a source that is not to be had, and for what a function
    takes from the notebook that cannot be written down.
    """
    made = Carried(taken=dict(wanted))
    for name, function in wanted.items():
        made.functions[name] = _function(function, name, what, made)
    return made


def _function(function: Callable, name: str, what: str, made: Carried) -> str:
    layers = decorators.layers(function)
    node, text, file, line = _source(layers[-1], what)
    made.origins[name] = Origin.of(text, file, line)
    text = _renamed(text, node, name)
    where = f"{what}: {node.name}"
    kept = decorators.kept(layers, node, where, file, line)
    for each in kept:
        try:
            for used, value in each.needs.items():
                take(used, value, where, made)
        except SaveError as error:
            raise each.refused(error.message) from None
    for used, value in needs(layers[-1], node).items():
        itself = used == name and getattr(decorators.layers(value)[-1], "__code__", None) is layers[-1].__code__
        if not itself:
            take(used, value, where, made)
    return "\n".join([*(f"@{each.text}" for each in kept), text])


def _source(function: Callable, what: str) -> tuple[ast.FunctionDef, str, str, int]:
    """(its tree, its text without decorators, the cell or file it is in, its line there)."""
    said = f"{what}: the source of {getattr(function, '__name__', function)}"
    if getattr(function, "__name__", "") == "<lambda>":
        raise SaveError(f"{what}: a lambda has no text of its own; write it with def")
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or ""
    except (OSError, TypeError):
        raise SaveError(f"{said} cannot be found; define it in a cell or a file, and run that again") from None
    text = textwrap.dedent("".join(lines))
    try:
        node = ast.parse(text).body[0]
    except SyntaxError:
        raise SaveError(f"{said} is not a function by itself; write it with def, on lines of its own") from None
    if not isinstance(node, ast.FunctionDef):
        raise SaveError(f"{said} is no def; write it as one")
    body = text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    return node, "".join(body).rstrip("\n"), cell_name(file), max(first, 1) + node.lineno - 1


def cell_name(file: str) -> str:
    """A file as a reader of the package knows it: `rmsnorm.py`, or `a cell`."""
    return "a cell" if not file or re.search(r"ipykernel|<ipython|^<", file) else Path(file).name


def _renamed(text: str, node: ast.FunctionDef, name: str) -> str:
    if node.name == name:
        return text
    return re.sub(rf"^def {re.escape(node.name)}\b", f"def {name}", text, count=1)


def needs(function: Callable, node: ast.FunctionDef) -> dict[str, object]:
    """Every name that the function looks up outside itself, and what it finds there."""
    known = getattr(function, "__globals__", {})
    code = function.__code__
    wanted = names(code) | set(code.co_freevars)
    signature = [*ast.walk(node.args), *([node.returns] if node.returns else [])]
    for part in signature:
        wanted |= {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
    found = {n: known[n] for n in sorted(wanted) if n in known}
    cells = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    loaded = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return {n: v for n, v in found.items() if n in loaded or n not in attributes}


def take(name: str, value: Any, what: str, made: Carried) -> None:
    """Let the module have this name. SaveError where its value has no text."""
    if name in made.taken:
        if made.taken[name] is not value and not (isinstance(value, PLAIN) and made.taken[name] == value):
            raise SaveError(f"{what} uses {name}, which is something else for another function of the op: rename one")
        return
    made.taken[name] = value
    statement = importable(name, value)
    if statement:
        made.imports[name] = statement
    elif hasattr(value, "registration") and hasattr(value, "qualname"):
        made.ops[name] = value
    elif isinstance(value, type) and "__workbench_class__" in vars(value):  # of a C++ class, see classes.py
        made.imports[name] = f"from ._classes import {value.__name__}" + (
            f" as {name}" if name != value.__name__ else ""
        )
    elif isinstance(decorators.layers(value)[-1], types.FunctionType):
        made.helpers[name] = ""  # its place, before those that it calls in turn: a circle ends here
        body = _function(value, name, what, made)
        if body.startswith("@"):
            del made.helpers[name]  # a decorator is called when the module is imported: what it calls comes first
        made.helpers[name] = body
    else:
        text = literal(value)
        if text is None:
            raise SaveError(f"{what} uses {name} of the notebook, {_told(value)}: {_cure(name, value)}")
        made.constants[name] = text
        if "math." in text:
            made.imports.setdefault("math", "import math")
        if "torch." in text:
            made.imports.setdefault("torch", "import torch")


def literal(value: object) -> str | None:
    """A value as Python text; None where it has none."""
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else f"{'-' * (value < 0)}math.inf"
    if isinstance(value, PLAIN):
        return repr(value)
    if type(value) in (list, tuple, set, frozenset):
        parts = [literal(v) for v in value]  # type: ignore[attr-defined]
        if any(p is None for p in parts):
            return None
        if isinstance(value, (set, frozenset)):  # the order of a set of strings differs from process to process
            parts.sort(key=str)
        inside = ", ".join(p for p in parts if p is not None)
        if isinstance(value, tuple):
            return f"({inside}{',' * (len(parts) == 1)})"
        return f"[{inside}]" if isinstance(value, list) else f"{type(value).__name__}([{inside}])"
    if type(value) is dict:
        pairs = [(literal(k), literal(v)) for k, v in value.items()]
        return None if any(None in p for p in pairs) else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    return None


def _told(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a Tensor of shape {tuple(value.shape)}"
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def _cure(name: str, value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"take {name} as an argument of the op, or make it inside the function"
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] == OURS:
            return "a package does without it; write what it does in plain PyTorch"
        return "install it as a package, or copy what is used into the function"
    if isinstance(value, type):
        return "a module beside the notebook cannot come along; write what is used of it as functions"
    return f"pass {name} as an argument, or make it inside the function"


def _import_order(statement: str) -> tuple[int, int, str]:
    root = re.split(r"[ .]", statement.removeprefix("from ").removeprefix("import "))[0]
    return (0 if root in sys.stdlib_module_names else 1 if root else 2, int(statement.startswith("from")), statement)


def check_imports(statements: Sequence[str]) -> list[str]:
    """The packages, beside torch and the standard library, that these import: a package depends on them."""
    roots = {re.split(r"[ .]", s.removeprefix("from ").removeprefix("import "))[0] for s in statements}
    return sorted(r for r in roots if r not in sys.stdlib_module_names and r != "torch")
