"""Whose strides a Triton launcher reads, by its text: what it does not ask, it counts on."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..source import Source, code

ASKS = ("stride", "contiguous")
HARMLESS = ("len", "list", "tuple", "zip", "min", "max", "isinstance", "print")  # of Python's own


def reads_none(source: Source) -> bool:
    """Does the cell count on contiguous tensors altogether?"""
    words = code(source.text, "triton")
    return not any(word in words for word in ASKS)


def unread(launcher: ast.FunctionDef, names: Sequence[str]) -> tuple[str, ...]:
    """Those of these parameters whose own layout the launcher never asks, under whatever name it has them.

    >>> unread(ast.parse("def backward(dy, x): k[(1,)](dy, x, x.stride(0))").body[0], ("dy", "x"))
    ('dy',)

    What it hands to a function, other than torch's and the kernels, may be asked there.
    """
    return tuple(n for n in names if not _asked(launcher, _aliases(launcher, n)))


def _aliases(launcher: ast.FunctionDef, name: str) -> set[str]:
    """The names under which the launcher has the tensor, or views of it."""
    found, before = {name}, 0
    while len(found) > before:
        before = len(found)
        for node in ast.walk(launcher):
            if isinstance(node, ast.Assign) and _seen_as(node.value, found):
                found |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.For | ast.comprehension) and _mentions(node.iter, found):
                found |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.NamedExpr) and _seen_as(node.value, found):
                found.add(node.target.id)
    return found


def _asked(launcher: ast.FunctionDef, names: set[str]) -> bool:
    for node in ast.walk(launcher):
        if isinstance(node, ast.Attribute) and any(word in node.attr for word in ASKS) and _mentions(node.value, names):
            return True
        if isinstance(node, ast.Call) and _elsewhere(node.func) and any(
            _mentions(a, names) for a in (*node.args, *(k.value for k in node.keywords))
        ):  # fmt: skip
            return True
    return False


def _elsewhere(function: ast.expr) -> bool:
    """Is it a function of the cell's own, which may ask what the launcher does not? A launch is none."""
    if isinstance(function, ast.Subscript):
        return False
    root = function
    while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name):
        return False
    if isinstance(function, ast.Attribute):
        return root.id[:1].isupper()  # TensorDescriptor.from_tensor
    return root.id not in HARMLESS


def _seen_as(value: ast.expr, names: set[str]) -> bool:
    """Is it one of the names, or a view of it (`dy.reshape(-1, n)`)? `torch.empty_like(dy)` is another tensor."""
    if isinstance(value, ast.Tuple | ast.List):
        return any(_seen_as(v, names) for v in value.elts)
    if isinstance(value, ast.IfExp):
        return _seen_as(value.body, names) or _seen_as(value.orelse, names)
    while isinstance(value, ast.Attribute | ast.Call | ast.Subscript):
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Name) and value.id in names


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


__all__ = ["reads_none", "unread"]
