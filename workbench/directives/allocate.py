"""`out = empty(M, N, dtype=float32)` and its three kin, and whether all that must be made is made."""

from __future__ import annotations

import ast
from typing import Any

from ..errors import SchemaError
from .expressions import check
from .lines import shorten
from .nodes import Allocate, Declaration, Expression, Kind
from .vocabulary import Scope, a_kind


def allocation(name: str, call: Any, scope: Scope, line: int, role: str, *, needs_dtype: bool) -> Allocate:
    """The checked allocation. `needs_dtype`: there is no tensor argument to take a dtype from."""
    maker = call.func.id
    dtype = _dtype(call, scope, line)
    zeroed = maker.startswith("zeros")
    if maker.endswith("_like"):
        if len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
            raise SchemaError(f"{maker} takes the name of one tensor, got {shorten(ast.unparse(call))}", line=line)
        like = check(call.args[0], scope, line)
        if like.kind is not Kind.TENSOR:
            raise SchemaError(f"{maker} takes a tensor, {like.text} is {a_kind(like.kind)}", line=line)
        return Allocate(name, zeroed, None, call.args[0].id, dtype, role, line)
    if needs_dtype and dtype is None:
        raise SchemaError(f"{name} needs a dtype: no tensor argument to take it from; add dtype=float32", line=line)
    return Allocate(name, zeroed, _sizes(maker, call, scope, line), None, dtype, role, line)


def _dtype(call: Any, scope: Scope, line: int) -> Expression | None:
    found = None
    for keyword in call.keywords:
        if keyword.arg != "dtype":
            got = f"**{shorten(ast.unparse(keyword.value))}" if keyword.arg is None else f"{keyword.arg}="
            raise SchemaError(
                f"{call.func.id} takes dtype= and nothing else by keyword, got {got}; tensors are contiguous and on "
                "the device of the arguments",
                line=line,
            )
        found = check(keyword.value, scope, line)
        if found.kind is not Kind.DTYPE:
            raise SchemaError(
                f"dtype= takes a dtype such as float32 or x.dtype, {shorten(found.text)} is {a_kind(found.kind)}",
                line=line,
            )
    return found


def _sizes(maker: str, call: ast.Call, scope: Scope, line: int) -> tuple[Expression, ...]:
    items = call.args
    if not items:
        raise SchemaError(
            f"{maker} takes sizes: {maker}(rows, cols), {maker}(x.shape), or {maker}(()) for one element", line=line
        )
    if len(items) == 1 and isinstance(items[0], ast.Tuple):
        items = items[0].elts
    elif len(items) == 1 and not isinstance(items[0], ast.Starred):
        lone = check(items[0], scope, line)
        if lone.kind is Kind.INTS:
            return (lone,)
    sizes = []
    for item in items:
        starred = isinstance(item, ast.Starred)
        size = check(item.value if isinstance(item, ast.Starred) else item, scope, line)
        if starred and size.kind is not Kind.INTS:
            raise SchemaError(f"*{size.text}: a star needs a shape, such as *x.shape[:-1]", line=line)
        if not starred and size.kind is not Kind.INT:
            cure = f"; splat it: *{size.text}" if size.kind is Kind.INTS else ""
            cure = "; divide with // or cdiv(a, b)" if size.kind is Kind.FLOAT else cure
            raise SchemaError(
                f"{maker} takes integer sizes, {shorten(size.text)} is {a_kind(size.kind)}{cure}", line=line
            )
        sizes.append(size)
    return tuple(sizes)


def complete(declaration: Declaration, line: int) -> None:
    """SchemaError on `line`, with the line to write, if an output, saved tensor or every gradient is missing."""
    schema = declaration.schema
    first = declaration.first_tensor
    how = f"empty_like({first})" if first else "empty(..., dtype=float32)"
    if declaration.entry == "backward":
        if not declaration.gradients:
            able = [f"grad_{a.name}" for a in schema.arguments if a.is_tensor and not a.mutated]
            if not able:
                raise SchemaError(
                    f"{schema.qualname} has no tensor argument that a raw backward could make a gradient of", line=line
                )
            raise SchemaError(
                f"this backward cell makes no gradient ({', '.join(able)}): add for instance "
                f"'//! {able[0]} = empty_like({able[0].removeprefix('grad_')})'",
                line=line,
            )
        return
    for name, type_ in zip(schema.outputs, schema.output_types, strict=True):
        if type_ != "Tensor":
            raise SchemaError(
                f"{schema.qualname} returns {type_}: a raw kernel returns tensors only; use the host "
                "tier, C++ functions on Tensor",
                line=line,
            )
        if name not in declaration.outputs:
            raise SchemaError(
                f"nothing makes the output {name!r} of {schema.qualname}: add for instance '//! {name} = {how}'",
                line=line,
            )
    for name in schema.saves:
        if name not in declaration.saved:
            raise SchemaError(
                f"nothing makes {name!r}, which {schema.qualname} saves for backward: add for instance "
                f"'//! {name} = {how}'",
                line=line,
            )
