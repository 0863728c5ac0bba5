"""A declaration evaluated in Python: what it allocates, for fake and real tensors.

Sizes may be SymInts, and stay symbolic: see `symbolic.py`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

import torch

from .. import gpu
from ..errors import SchemaError
from .nodes import Allocate, Declaration, Expression, Let, Require, Statement, Tune, Unpack, bound_names
from .symbolic import FUNCTIONS, choose
from .vocabulary import DTYPES


def fake(
    declaration: Declaration, arguments: Mapping[str, object], tuned: Mapping[str, int | float] | None = None
) -> dict[str, Any]:
    """The outputs and saved tensors (forward) or gradients (backward) by name, empty, for fake or real arguments.

    >>> fake(declaration, {"x": torch.empty(4, 128, device="meta"), "w": ...})["y"].shape
    torch.Size([4, 128])

    Computes only what these and `require` need; sizes may be SymInts and are not specialised. A `require` that is not
    met is torch._check's RuntimeError.
    """
    values = _Values(declaration, arguments, tuned or {})
    for s in declaration.statements:
        if isinstance(s, Unpack):
            values.check_rank(s)
        elif isinstance(s, Require) and not values.needs_device(s.value):
            values.require(s)
    return {name: values[name] for name in (*declaration.outputs, *declaration.saved, *declaration.gradients)}


def values(
    declaration: Declaration, arguments: Mapping[str, object], tuned: Mapping[str, int | float] | None = None
) -> _Values:
    """The named values of a declaration for these arguments, `tuned` or the first of each: `.value(expression)`.

    What is not known raises SchemaError, or TypeError where it meets None.
    """
    return _Values(declaration, arguments, tuned or {})


_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class _Values:
    """Names to values, each computed when it is first asked for."""

    def __init__(
        self, declaration: Declaration, arguments: Mapping[str, object], tuned: Mapping[str, int | float]
    ) -> None:
        self.declaration = declaration
        self.known: dict[str, Any] = dict(arguments)
        for a in declaration.arguments:
            if a.name not in self.known:
                if not a.required or a.optional:
                    self.known[a.name] = None if a.required else a.default
                else:
                    raise SchemaError(f"{declaration.schema.qualname}: the fake was not given {a.name!r}")
        self.tuned = tuned
        self.by_name = {n: s for s in declaration.statements for n in bound_names(s)}
        model = self.model()
        if model is not None and model.device.type == "cuda":  # of a processor it changes while the program runs
            self.known.setdefault("sm_count", gpu.sm_count(model.device.index))

    def __getitem__(self, name: str) -> Any:
        if name not in self.known:
            statement = self.by_name[name]
            if isinstance(statement, Unpack):
                self.unpack(statement)
            else:
                self.known[name] = self.made(statement)
        return self.known[name]

    def made(self, s: Statement) -> Any:
        if isinstance(s, Tune):
            return self.tuned.get(s.name, s.values[0])
        if isinstance(s, Let):
            return self.value(s.value)
        assert isinstance(s, Allocate)
        model = self[s.like] if s.like else self.model()
        dtype = self.value(s.dtype) if s.dtype else None
        sizes = list(model.shape) if s.sizes is None else []
        for e in s.sizes or ():
            size = self.value(e)
            sizes.extend(size) if isinstance(size, (tuple, list)) else sizes.append(size)
        make = torch.zeros if s.zeroed else torch.empty
        if model is None:
            return make(sizes, dtype=dtype)
        return make(sizes, dtype=dtype or model.dtype, device=model.device)

    def model(self) -> Any:
        """The tensor that dtype and device are taken from; None when the op was given no tensor."""
        first = self.declaration.first_tensor
        if first and self.known.get(first) is not None:
            return self.known[first]
        return next((v for v in self.known.values() if isinstance(v, torch.Tensor)), None)

    def check_rank(self, s: Unpack) -> None:
        count, star = len(self.value(s.value)), any(n.startswith("*") for n in s.names)
        wanted = len(s.names) - star
        fits = count >= wanted if star else count == wanted
        torch._check(
            fits,
            lambda: (
                f"{self.declaration.schema.qualname}: {', '.join(s.names)} = {s.value.text} needs "
                f"{'at least ' if star else ''}{wanted} dimensions, got {count} (line {s.line})"
            ),
        )

    def unpack(self, s: Unpack) -> None:
        items = list(self.value(s.value))
        self.check_rank(s)
        star = next((i for i, n in enumerate(s.names) if n.startswith("*")), None)
        if star is not None:
            items[star : len(items) - (len(s.names) - star - 1)] = [None]
        self.known.update({n: v for n, v in zip(s.names, items, strict=True) if n not in ("_", "*_")})

    def require(self, s: Require) -> None:
        """One check for each part of an `and`: torch learns more from these than from the whole."""
        for part in _conjuncts(s.value.tree):
            met = self.eval(part)
            torch._check(
                met, lambda: f"{self.declaration.schema.qualname}: require {s.value.text} is not met (line {s.line})"
            )

    def needs_device(self, e: Expression) -> bool:
        """Whether `sm_count` of a processor takes part: no fake knows it, so such a check is left to the launcher."""
        names = {n.id for n in ast.walk(e.tree) if isinstance(n, ast.Name)}
        if "sm_count" in names and "sm_count" not in self.known:
            return True
        made = [self.by_name[n] for n in names if n in self.by_name]
        return any(self.needs_device(s.value) for s in made if isinstance(s, (Let, Unpack)))

    def value(self, e: Expression) -> Any:
        try:
            return self.eval(e.tree)
        except _Refused as error:
            raise SchemaError(f"{self.declaration.schema.qualname}: {error} in '{e.text}'", line=e.line) from None

    def eval(self, node: ast.AST) -> Any:
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.known or node.id in self.by_name:
            return self[node.id]
        if node.id in DTYPES:
            return getattr(torch, node.id)
        raise _Refused("a size depends on sm_count, which differs from one machine to the next,")

    def _tensor(self, node: Any) -> torch.Tensor:
        tensor = self[node.id]
        if tensor is None:
            raise _Refused(f"{node.id} is None")
        return tensor

    def _attribute(self, node: ast.Attribute) -> Any:
        return getattr(self._tensor(node.value), node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        items, at = self.eval(node.value), node.slice
        try:
            if isinstance(at, ast.Slice):
                return tuple(items[slice(*(None if b is None else self.eval(b) for b in (at.lower, at.upper)))])
            return items[self.eval(at)]
        except IndexError:
            raise _Refused(f"{ast.unparse(node)} is out of range, there are {len(items)} dimensions") from None

    def _tuple(self, node: ast.Tuple) -> tuple:
        items: list[Any] = []
        for item in node.elts:
            items.extend(self.eval(item.value)) if isinstance(item, ast.Starred) else items.append(self.eval(item))
        return tuple(items)

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.eval(node.left), self.eval(node.right)
        try:
            return _BINARY[type(node.op)](left, right)
        except ZeroDivisionError:
            raise _Refused(f"division by zero: {ast.unparse(node.right)} is 0") from None

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        act = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: torch.sym_not}[type(node.op)]
        return act(self.eval(node.operand))

    def _boolop(self, node: ast.BoolOp) -> Any:
        both = isinstance(node.op, ast.And)
        result: Any = both
        for part in node.values:
            if result is (not both):  # as Python does: what is decided is not looked at
                return result
            value = self.eval(part)
            if value is not both:
                result = result & value if both else result | value
        return result

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.eval(node.test)
        if isinstance(test, torch.SymBool):
            return choose(test, self.eval(node.body), self.eval(node.orelse))
        return self.eval(node.body if test else node.orelse)

    def _compare(self, node: ast.Compare) -> Any:
        result: Any = True
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if result is False:
                return False
            met = self._pair(left, op, right)
            result = met if result is True else result & met
            left = right
        return result

    def _pair(self, left: Any, op: ast.cmpop, right: ast.AST) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return (self[left.id] is None) is isinstance(op, ast.Is)
        a, b = self.eval(left), self.eval(right)
        if not isinstance(a, tuple):
            return _COMPARE[type(op)](a, b)
        same: Any = len(a) == len(b)
        for x, y in zip(a, b, strict=True) if same else ():
            met = x == y
            same = met if same is True else same & met
        return torch.sym_not(same) if isinstance(op, ast.NotEq) else same

    def _call(self, node: Any) -> Any:
        if isinstance(node.func, ast.Attribute):
            tensor = self._tensor(node.func.value)
            try:
                return getattr(tensor, node.func.attr)(*map(self.eval, node.args))
            except IndexError:
                raise _Refused(f"{ast.unparse(node)} is out of range, there are {tensor.dim()} dimensions") from None
        values = [self.eval(a) for a in node.args]
        try:
            return FUNCTIONS[node.func.id](*values)
        except ZeroDivisionError:
            raise _Refused(f"division by zero in {ast.unparse(node)}") from None
        except ValueError:
            raise _Refused(f"the square root of a negative number, {ast.unparse(node)},") from None


class _Refused(Exception):
    """Why an expression has no value; `value` adds where."""


def _conjuncts(tree: ast.AST) -> list[ast.AST]:
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for value in tree.values for part in _conjuncts(value)]
    return [tree]
