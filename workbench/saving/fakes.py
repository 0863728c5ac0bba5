"""A declaration as the Python function that makes its tensors without data: the third rendering of one text. Pure text.

Only what the wanted tensors follow from is in it; sizes may be symbols of torch's.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..build.statements_cpp import _uses, statement_text
from ..directives import Allocate, Declaration, Expression, Let, Require, Tune, Unpack, bound_names
from ..directives.symbolic import FUNCTIONS
from ..directives.vocabulary import DTYPES
from ..errors import SaveError
from ..schema import Schema

SIZES = "__sizes"  # no argument begins so


def render(name: str, schema: Schema, declaration: Declaration, wanted: Sequence[str], *, checks: bool = False) -> str:
    """The text of a function of the op's arguments that returns a list of these tensors.

    >>> print(render("_saved_cpu", schema, declaration, ["rstd"]))
    def _saved_cpu(x, w, eps):
        rows = __sizes.prod(x.shape[:-1])
        rstd = torch.empty([rows], dtype=torch.float32, device=x.device)
        return [rstd]

    `checks` keeps what `require` says, for an op whose fake this is. SaveError where a size depends on the machine.
    """
    lines = []
    for k in _needed(declaration, wanted, checks=checks):
        lines += _statement(declaration, declaration.statements[k], schema)
    arguments = ", ".join(a.name for a in schema.arguments)
    unused = [] if lines else ["    del " + arguments] * bool(arguments)
    return "\n".join([f"def {name}({arguments}):", *unused, *lines, f"    return [{', '.join(wanted)}]"])


def _needed(declaration: Declaration, wanted: Sequence[str], *, checks: bool) -> list[int]:
    made = {n: k for k, s in enumerate(declaration.statements) for n in bound_names(s)}
    waiting = [made[n] for n in wanted if n in made]
    waiting += [k for k, s in enumerate(declaration.statements) if checks and isinstance(s, Require | Unpack)]
    needed: set[int] = set()
    while waiting:
        k = waiting.pop()
        if k not in needed:
            needed.add(k)
            waiting.extend(made[n] for n in _uses(declaration.statements[k]) if n in made)
    return sorted(needed)


def _statement(declaration: Declaration, s: object, schema: Schema) -> list[str]:
    if isinstance(s, Unpack):
        return [f"    {', '.join(s.names)}{',' * (len(s.names) == 1)} = {_text(s.value, schema)}"]
    if isinstance(s, Tune):
        return [f"    {s.name} = {s.values[0]!r}"]
    if isinstance(s, Let):
        return [f"    {s.name} = {_text(s.value, schema)}"]
    if isinstance(s, Require):
        said = f"{schema.qualname}: {statement_text(s)} is not met"
        return [f"    torch._check({_text(s.value, schema)}, lambda: {said!r})"]
    assert isinstance(s, Allocate)
    model = s.like or declaration.first_tensor or ""
    dtype = _text(s.dtype, schema) if s.dtype else f"{model}.dtype"
    if s.sizes is None:
        sizes = f"{model}.shape"
    else:
        parts = [("*" if e.kind.value == "ints" else "") + _text(e, schema) for e in s.sizes]
        sizes = f"[{', '.join(parts)}]"
    device = declaration.first_tensor or model
    make = "zeros" if s.zeroed else "empty"
    return [f"    {s.name} = torch.{make}({sizes}, dtype={dtype}, device={device}.device)"]


def _text(e: Expression, schema: Schema) -> str:
    return ast.unparse(_Spelled(e, schema).visit(ast.parse(ast.unparse(e.tree), mode="eval").body))


class _Spelled(ast.NodeTransformer):
    """Functions and dtypes with the module that has them."""

    def __init__(self, expression: Expression, schema: Schema) -> None:
        self.expression, self.known = expression, {a.name for a in schema.arguments}
        self.schema = schema

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "sm_count":
            raise SaveError(
                f"{self.schema.qualname}: '{self.expression.text}' depends on sm_count, which differs from one machine to "
                "the next, so its fake has no size",
                line=self.expression.line,
            )
        if node.id in DTYPES and node.id not in self.known:
            return ast.parse(f"torch.{node.id}", mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(a) for a in node.args]
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            node.func = ast.parse(f"{SIZES}.{_FUNCTIONS.get(node.func.id, node.func.id)}", mode="eval").body
        elif isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        return node


_FUNCTIONS = {"min": "minimum", "max": "maximum"}
