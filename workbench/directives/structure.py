"""The key of a declaration's structure: what its launcher depends on, with everything that is data left out."""

from __future__ import annotations

import ast

from .nodes import Allocate, Declaration, Expression, Launch, Let, Require, Statement, Tune, Unpack, is_number, kind_of


def shape_key(declaration: Declaration) -> str:
    """Equal exactly when one launcher serves both: numbers, tuned values, texts and lines are left out."""
    schema = declaration.schema
    parts = [f"{schema} outputs {schema.outputs} saves {schema.saves} entry {declaration.entry}"]
    parts += [f"{a.name}: {kind_of(a).value} {a.type} {a.mutated}" for a in declaration.arguments]
    parts += [_structure(s) for s in (*declaration.statements, *declaration.launches)]
    return "\n".join(parts)


def _structure(item: Statement | Launch) -> str:
    if isinstance(item, Let):
        return f"let {item.name}: {item.value.kind.value} = {_shape(item.value)}"
    if isinstance(item, Unpack):
        return f"unpack {item.names} = {_shape(item.value)}"
    if isinstance(item, Require):
        return f"require {_shape(item.value)}"
    if isinstance(item, Tune):
        return f"tune {item.name}: {type(item.values[0]).__name__}"
    if isinstance(item, Allocate):
        sizes = "like " + item.like if item.like else ", ".join(map(_shape, item.sizes or ()))
        return f"{item.role} {item.name} zeroed={item.zeroed} ({sizes}) dtype={_shape(item.dtype)}"
    assert isinstance(item, Launch)
    sides = (item.grid, item.block, (item.shared,) if item.shared else (), item.cluster)
    return "launch " + "; ".join(", ".join(map(_shape, side)) for side in sides)


def _shape(e: Expression | None) -> str:
    """The tree with every number replaced by its type."""
    if e is None:
        return "-"
    return ast.dump(_NoNumbers().visit(ast.parse(ast.unparse(e.tree), mode="eval")).body)


class _NoNumbers(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(f"<{type(node.value).__name__}>", ast.Load()) if is_number(node) else node
