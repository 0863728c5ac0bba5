"""One expression of a directive as C++: Python's meaning through the helpers of `directives.h`. Pure text.

Kinds were checked when the directive was parsed, so a node here is always one of the language. Numbers do not appear
in the text: each is a read of the descriptor's table, so that another number is the same launcher.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ..directives import Declaration, Kind
from ..errors import SchemaError

ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def local(name: str) -> str:
    """The C++ name of a value: a suffix keeps clear of keywords and of our own names."""
    return f"{name}_"


class Writer:
    """Writes the expressions of one declaration.

    >>> Writer(declaration).expression(ast.parse("n // 2", mode="eval").body)     # 2 is literal 0
    'wb::floordiv(n_, d.literals[0].i)'

    `numbers`: they stand in the text, as in a saved package, which nothing edits.
    """

    def __init__(self, declaration: Declaration, device: str = "cpu", *, numbers: bool = False) -> None:
        self.declaration, self.device, self.numbers = declaration, device, numbers
        self.kinds: Mapping[str, Kind] = declaration.values
        self.positions = {a.name: i for i, a in enumerate(declaration.arguments)}
        self.optional = {a.name for a in declaration.arguments if a.optional}

    def expression(self, node: ast.AST) -> str:
        write = getattr(self, f"_{type(node).__name__.lower()}", None)
        if write is None:
            raise SchemaError(f"'{ast.unparse(node)}' has no form in C++")
        return write(node)

    def is_ints(self, node: ast.AST) -> bool:
        """Is this a shape, strides, a tuple or a slice of one of them?"""
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Slice)
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Attribute) and node.func.attr == "stride" and not node.args
        return isinstance(node, ast.Tuple) or (isinstance(node, ast.Attribute) and node.attr == "shape")

    def tensor(self, node: ast.AST) -> str:
        """A tensor of which something is asked: one that may be None is checked first."""
        assert isinstance(node, ast.Name)
        name = self.declaration.aliases.get(node.id, node.id)
        return f'wb::given({local(name)}, "{name}")' if name in self.optional else local(name)

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        if self.numbers:
            return repr(node.value)
        field = "f" if isinstance(node.value, float) else "i"
        return f"d.literals[{self.declaration.literal_index(node)}].{field}"

    def _name(self, node: ast.Name) -> str:
        if node.id in self.kinds:
            return local(node.id)
        if node.id == "sm_count":
            return "wb::sm_count()" if self.device == "cpu" else "wb::gpu(f).sm_count"
        return f"wb::{node.id}_" if node.id == "bool" else f"wb::{node.id}"

    def _attribute(self, node: ast.Attribute) -> str:
        owner = self.tensor(node.value)
        return f"{owner}.dtype" if node.attr == "dtype" else f"{owner}.shape()"

    def _subscript(self, node: ast.Subscript) -> str:
        base, index = self.expression(node.value), node.slice
        if not isinstance(index, ast.Slice):
            return f"{base}.at({self.expression(index)})"
        low = self.expression(index.lower) if index.lower else ""
        if index.upper is None:
            return f"{base}.from({low})" if low else base
        return f"{base}.slice({low or 'int64_t(0)'}, {self.expression(index.upper)})"

    def _tuple(self, node: ast.Tuple) -> str:
        return f"wb::Dims({', '.join(self.expression(e) for e in node.elts)})"

    def _starred(self, node: ast.Starred) -> str:
        return f"wb::Span({self.expression(node.value)})"

    def _binop(self, node: ast.BinOp) -> str:
        return f"wb::{ARITHMETIC[type(node.op)]}({self.expression(node.left)}, {self.expression(node.right)})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        inner = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            return f"!{inner}"
        return f"wb::neg({inner})" if isinstance(node.op, ast.USub) else inner

    def _boolop(self, node: ast.BoolOp) -> str:
        joint = " && " if isinstance(node.op, ast.And) else " || "
        return f"({joint.join(self.expression(v) for v in node.values)})"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"({self.expression(node.test)} ? {self.expression(node.body)} : {self.expression(node.orelse)})"

    def _compare(self, node: ast.Compare) -> str:
        sides = [node.left, *node.comparators]
        parts = [self.comparison(a, op, b) for a, op, b in zip(sides, node.ops, sides[1:], strict=False)]
        return f"({' && '.join(parts)})"

    def comparison(self, left: ast.AST, op: ast.cmpop, right: ast.AST) -> str:
        if isinstance(op, (ast.Is, ast.IsNot)):
            assert isinstance(left, ast.Name)
            return self.is_none(left.id) if isinstance(op, ast.Is) else f"!{self.is_none(left.id)}"
        a, b = self.expression(left), self.expression(right)
        if self.is_ints(left):
            return f"{'' if isinstance(op, ast.Eq) else '!'}wb::equal({a}, {b})"
        return f"{a} {COMPARISONS[type(op)]} {b}"

    def is_none(self, name: str) -> str:
        name = self.declaration.aliases.get(name, name)
        if self.kinds[name] is Kind.TENSOR:
            return f"!{local(name)}"
        return f"f.is_none({self.positions[name]})"

    def maybe(self, name: str) -> str:
        """A number that may be None, as a message shows it."""
        origin = self.declaration.aliases.get(name, name)
        return f"wb::maybe({self.is_none(name)}, {local(name)})" if origin in self.optional else local(name)

    def _call(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Name):
            return f"wb::{node.func.id}({', '.join(self.expression(a) for a in node.args)})"
        assert isinstance(node.func, ast.Attribute)
        owner, method = self.tensor(node.func.value), node.func.attr
        if method == "stride":
            return f"{owner}.stride()" + (f".at({self.expression(node.args[0])})" if node.args else "")
        return f"wb::element_size({owner}.dtype)" if method == "element_size" else f"{owner}.{method}"

    def shown(self, node: ast.AST) -> list[tuple[str, str]]:
        """What a failed `require` tells about its expression: (text, C++ that cannot fail) of names and shapes."""
        found: dict[str, str] = {}

        def visit(part: ast.AST) -> None:
            if isinstance(part, ast.Subscript) and not isinstance(part.slice, ast.Slice):
                visit(part.value)
                visit(part.slice)
                return
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                name = part.func.value.id  # type: ignore[attr-defined]
                told = {"stride": ("stride()", "stride()"), "numel": ("numel()", "numel"), "dim": ("dim()", "dim"),
                        "element_size": ("dtype", "dtype")}[part.func.attr]  # fmt: skip
                found[f"{name}.{told[0]}"] = f"{local(name)}.{told[1]}"
                for argument in part.args:
                    visit(argument)
                return
            if isinstance(part, ast.Attribute):
                name = part.value.id  # type: ignore[attr-defined]
                found[f"{name}.{part.attr}"] = f"{local(name)}.{'dtype' if part.attr == 'dtype' else 'shape()'}"
                return
            if isinstance(part, ast.Name) and self.kinds.get(part.id, Kind.TENSOR) is not Kind.TENSOR:
                found[part.id] = self.maybe(part.id)
            for child in ast.iter_child_nodes(part):
                visit(child)

        visit(node)
        return list(found.items())
