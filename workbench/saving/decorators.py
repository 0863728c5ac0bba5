"""Decorators of a function that goes along: those that made what ran are kept as text, all others are no part of it.

A decorator that uses `functools.wraps` leaves what it wrapped as `__wrapped__`; each such layer is one of the lowest
lines above `def`. One without leaves a function of its own, whose text is looked at as any other's.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SaveError
from .modules import OURS, installed

_MISSING = object()


@dataclass(frozen=True)
class Decorator:
    """`text` without its "@"; `needs` are the names in it and what they stand for."""

    text: str
    needs: Mapping[str, object]
    where: str
    file: str
    line: int

    def refused(self, why: str) -> SaveError:
        """The error that names it."""
        said = f"{self.where} is decorated with @{self.text}, which cannot come along ({why}): call it inside the function, or write there what it does"
        return SaveError(said, line=self.line, file=self.file)


def layers(value: Any) -> list[Any]:
    """What was wrapped, from the outside in: `[wrapper, function]`."""
    found = [value]
    while isinstance(inner := getattr(found[-1], "__dict__", {}).get("__wrapped__"), types.FunctionType):
        found.append(inner)
    return found


def kept(found: Sequence[Any], node: ast.FunctionDef, where: str, file: str, line: int) -> list[Decorator]:
    """The decorators that made `layers` of the function that `node` defines, the uppermost first.

    `line` is that of its `def` in `file`. SaveError, naming the decorator, where it is not what wrapped the function.
    """
    scope, count = _scope(found[-1]), len(found) - 1
    given = [d for d in node.decorator_list if not _ours(_value(d, scope))]
    if len(given) < count:
        raise SaveError(
            f"{where} was wrapped by {_called(found[0])}, which no decorator in its text does: call that inside the function, "
            "or write there what it does", line=line, file=file,
        )  # fmt: skip
    mine = []
    for made, d in zip(found[:-1], given[len(given) - count :], strict=True):
        used = dict.fromkeys(n.id for n in ast.walk(d) if isinstance(n, ast.Name))
        needs = {n: scope[n] for n in used if n in scope}
        decorator = Decorator(ast.unparse(d), needs, where, file, line + d.lineno - node.lineno)
        unknown = next((n for n in used if n not in scope and not hasattr(builtins, n)), "")
        if unknown:
            raise decorator.refused(f"{unknown} is a name of another function")
        if not _made_by(made, _value(d, scope)):
            raise decorator.refused(f"{_called(made)}, which ran, is not written inside it")
        mine.append(decorator)
    return mine


def _scope(function: Any) -> dict[str, object]:
    """What the names above its `def` stand for."""
    scope = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            continue
    return scope


def _value(node: ast.expr, scope: Mapping[str, object]) -> object:
    """What is written before the brackets of a decorator."""
    if isinstance(node, ast.Call):
        return _value(node.func, scope)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, scope)
        return owner if _ours(owner) else getattr(owner, node.attr, _MISSING)
    return scope.get(node.id, getattr(builtins, node.id, _MISSING)) if isinstance(node, ast.Name) else _MISSING


def _ours(value: object) -> bool:
    """`@wb.op`, `@op.backward`: they read the function and give it to the op, which is what is saved."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] == OURS
    named = getattr(value, "__module__", None) or type(value).__module__
    return hasattr(value, "registration") or str(named).partition(".")[0] == OURS


def _made_by(made: Any, value: Any) -> bool:
    """Is that function, or callable, one that this decorator makes?"""
    own = inspect.unwrap(value) if callable(value) else value
    code = getattr(made, "__code__", None)
    if isinstance(own, types.FunctionType) and not installed(own.__module__ or ""):
        return code is not None and code in _inside(own.__code__)
    home = made.__globals__.get("__name__", "") if code is not None else type(made).__module__
    return installed(str(home))


def _inside(code: types.CodeType) -> set[types.CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return {*inner, *(found for c in inner for found in _inside(c))}


def _called(value: Any) -> str:
    code = getattr(value, "__code__", None)
    return code.co_name if code is not None else type(value).__name__
