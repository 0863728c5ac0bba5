"""Text of an expression -> a checked `Expression`, or a SchemaError on its line. Nothing is evaluated here.

The language is closed: a node, attribute, function or name that is not listed below is refused, with what to write
instead where we know it. What is allowed where is decided by kinds (`nodes.Kind`).
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Iterable

from ..errors import SchemaError
from . import slips
from .nodes import Expression, Kind
from .vocabulary import DTYPES, FUNCTIONS, INSTEAD, MAKERS, MAX_INTEGER, NUMBERS, Scope, a_kind, not_none, shown

_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check(tree: ast.expr, scope: Scope, line: int, text: str = "") -> Expression:
    """The expression with its kind, or SchemaError on `line`."""
    tree = _PlainDtypes().visit(tree)
    return Expression(tree, Checker(scope, line).kind(tree), text or ast.unparse(tree), line)


class _PlainDtypes(ast.NodeTransformer):
    """`torch.float32` becomes the name `float32`: one spelling for all who walk the trees."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in DTYPES:
            return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        return self.generic_visit(node)


class Checker:
    """Infers kinds, node by node. `scope` narrows on the way: `a if s is None else s` knows s on its right."""

    def __init__(self, scope: Scope, line: int) -> None:
        self.scope = scope
        self.line = line

    def fail(self, message: str) -> SchemaError:
        return SchemaError(message, line=self.line)

    def kind(self, node: ast.AST) -> Kind:
        visit = getattr(self, f"_{type(node).__name__.lower()}", None)
        if visit is None:
            raise self.fail(
                f"{shown(node)} is not in the directive language: it has numbers, arguments, x.shape, "
                f"x.stride(), + - * / // %, comparisons, and, or, not, a if c else b, {', '.join(FUNCTIONS)}"
            )
        return visit(node)

    def within(self, names: Iterable[str], node: ast.AST) -> Kind:
        return Checker(self.scope.but_known(names), self.line).kind(node)

    def number(self, node: ast.AST, what: str) -> Kind:
        found = self.kind(node)
        if found not in NUMBERS:
            raise self.fail(f"{what} takes numbers, {shown(node)} is {a_kind(found)}")
        return found

    def integer(self, node: ast.AST, what: str) -> Kind:
        found = self.kind(node)
        if found is not Kind.INT:
            raise self.fail(f"{what} takes integers, {shown(node)} is {a_kind(found)}")
        return found

    def condition(self, node: ast.AST, names: Iterable[str] = ()) -> Kind:
        found = self.within(names, node)
        if found is not Kind.BOOL:
            cure = f": write {shown(node, '')} != 0" if found in NUMBERS else ""
            raise self.fail(f"a condition is needed, {shown(node)} is {a_kind(found)}{cure}")
        return found

    def _constant(self, node: ast.Constant) -> Kind:
        value = node.value
        kinds = {int: Kind.INT, float: Kind.FLOAT, bool: Kind.BOOL, type(None): Kind.NONE}
        if type(value) not in kinds:
            raise self.fail(f"{shown(node)} is no number; texts have no use here")
        if type(value) is int and value > MAX_INTEGER:
            raise self.fail(f"{shown(node)} does not fit in 64 bits")
        if type(value) is float and not math.isfinite(value):
            raise self.fail(f"{shown(node)} is too large for a float")
        return kinds[type(value)]

    def _name(self, node: ast.Name) -> Kind:
        name, scope = node.id, self.scope
        if name in scope.kinds:
            found = scope.kinds[name]
            if found in (Kind.OPAQUE, Kind.STRING):
                raise self.fail(
                    f"the argument {name} is of a type that directives cannot use: they take tensors, integers, "
                    "floats, bools and dtypes; a list of tensors needs the host tier, a C++ function on "
                    "std::vector<Tensor>"
                )
            if found is not Kind.TENSOR and name in scope.maybe_none - scope.known:
                raise self.fail(f"{name} may be None here: write for instance '1.0 if {name} is None else {name}'")
            return found
        if name in DTYPES:
            return Kind.DTYPE
        if name == "sm_count":
            return Kind.INT
        raise self.fail(self.unknown(name))

    def unknown(self, name: str) -> str:
        """Why a name means nothing here, and what was probably meant."""
        if name in self.scope.later:
            return f"{name} is used before the line that defines it"
        if name in FUNCTIONS or name in MAKERS:
            return f"{name} is a function: write {name}(...)"
        if name in slips.DTYPE_NAMES:
            return f"{name!r} is not in the directive language: the dtype is {slips.DTYPE_NAMES[name]}"
        if name in INSTEAD:
            return f"{name!r} is not in the directive language: write {INSTEAD[name]}"
        if name in self.scope.constants:
            cure = f"write '//! tune {name} = {self.scope.constants[name]}' in its place, which the text sees too"
            return f"{name} is a constant of the text, which directives do not read: {cure}"
        near = difflib.get_close_matches(name, [*self.scope.kinds, *DTYPES, "sm_count"], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(self.scope.kinds) or 'nothing'}"
        return f"nothing is called {name!r}; {hint}"

    def _attribute(self, node: ast.Attribute) -> Kind:
        found = {"shape": Kind.INTS, "dtype": Kind.DTYPE}.get(node.attr)
        owner = self.tensor(node.value, node)
        if found is None:
            if node.attr in ("stride", "numel", "dim", "element_size"):
                raise self.fail(f"{shown(node)} is a method: write {owner}.{node.attr}()")
            instead = INSTEAD.get(node.attr, "x.shape, x.dtype, x.stride(), x.numel(), x.dim() or x.element_size()")
            raise self.fail(f"{shown(node)} is not in the directive language: write {instead}")
        return found

    def tensor(self, node: ast.AST, of: ast.AST) -> str:
        if not isinstance(node, ast.Name):
            raise self.fail(f"{shown(of)}: only a tensor's own name can stand before the dot")
        if node.id == "torch":
            raise self.fail(slips.of_torch(of))
        if node.id not in self.scope.kinds:
            raise self.fail(self.unknown(node.id))
        if self.scope.kinds[node.id] is not Kind.TENSOR:
            if self.scope.kinds[node.id] is Kind.OPAQUE:
                self._name(node)
            raise self.fail(f"{shown(of)}: {node.id} is {a_kind(self.scope.kinds[node.id])}, not a tensor")
        return node.id

    def _subscript(self, node: ast.Subscript) -> Kind:
        base = node.value
        if not (isinstance(base, (ast.Attribute, ast.Call)) and self.kind(base) is Kind.INTS):
            raise self.fail(f"{shown(node)}: only x.shape and x.stride() have items")
        if not isinstance(node.slice, ast.Slice):
            self.integer(node.slice, "an index")
            return Kind.INT
        if node.slice.step is not None:
            raise self.fail(f"{shown(node)}: a slice with a step is not in the directive language")
        for bound in (node.slice.lower, node.slice.upper):
            if bound is not None:
                self.integer(bound, "a slice")
        return Kind.INTS

    def _tuple(self, node: ast.Tuple) -> Kind:
        for item in node.elts:
            if isinstance(item, ast.Starred):
                if self.kind(item.value) is not Kind.INTS:
                    raise self.fail(f"{shown(item)}: a star needs a shape, such as *x.shape[:-1]")
            else:
                self.integer(item, "a shape")
        return Kind.INTS

    def _binop(self, node: ast.BinOp) -> Kind:
        sign = _ARITHMETIC.get(type(node.op))
        if sign is None:
            raise self.fail(f"{shown(node)}: the operators are + - * / // %")
        exact = sign in ("//", "%")
        sides = [(self.integer if exact else self.number)(side, f"'{sign}'") for side in (node.left, node.right)]
        return Kind.FLOAT if sign == "/" or Kind.FLOAT in sides else Kind.INT

    def _unaryop(self, node: ast.UnaryOp) -> Kind:
        if isinstance(node.op, ast.Not):
            return self.condition(node.operand)
        if isinstance(node.op, ast.Invert):
            raise self.fail(f"{shown(node)}: '~' is not in the directive language")
        return self.number(node.operand, "a sign")

    def _boolop(self, node: ast.BoolOp) -> Kind:
        known: set[str] = set()
        for value in node.values:
            self.condition(value, known)
            known |= not_none(value, isinstance(node.op, ast.And))
        return Kind.BOOL

    def _ifexp(self, node: ast.IfExp) -> Kind:
        self.condition(node.test)
        sides = {
            self.within(not_none(node.test, True), node.body),
            self.within(not_none(node.test, False), node.orelse),
        }
        if sides == set(NUMBERS):
            return Kind.FLOAT
        if len(sides) == 1 and sides <= {*NUMBERS, Kind.BOOL, Kind.DTYPE}:
            return sides.pop()
        raise self.fail(f"{shown(node)}: 'if' chooses between two numbers, two conditions or two dtypes")

    def _compare(self, node: ast.Compare) -> Kind:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.Is, ast.IsNot)):
                self._is_none(left, right, node)
            elif isinstance(op, (*_ORDER, ast.Eq, ast.NotEq)):
                self._comparable(left, right, op, node)
            else:
                raise self.fail(f"{shown(node)}: 'in' is not in the directive language; join == with 'or'")
            left = right
        return Kind.BOOL

    def _is_none(self, left: ast.AST, right: ast.AST, node: ast.Compare) -> None:
        if len(node.ops) > 1 or not (isinstance(right, ast.Constant) and right.value is None):
            raise self.fail(f"{shown(node)}: 'is' compares an argument with None, and nothing else")
        if not isinstance(left, ast.Name):
            raise self.fail(f"{shown(left)} is never None: only an argument can be")
        if left.id not in self.scope.kinds:
            raise self.fail(self.unknown(left.id))
        if left.id not in self.scope.maybe_none:
            raise self.fail(f"{left.id} is never None: it is {a_kind(self.scope.kinds[left.id])} that always comes")

    def _comparable(self, left: ast.AST, right: ast.AST, op: ast.cmpop, node: ast.Compare) -> None:
        sides = [self.kind(left), self.kind(right)]
        if all(k in NUMBERS for k in sides):
            return
        if Kind.NONE in sides:
            raise self.fail(f"{shown(node)}: compare with None by 'is None' or 'is not None'")
        if Kind.INTS in sides and not isinstance(op, _ORDER):
            other = next((n for n, k in zip((left, right), sides, strict=True) if k is Kind.INT), None)
            if other is not None:
                raise self.fail(f"{shown(node)}: a shape is compared with a shape: write ({shown(other, '')},)")
        if sides[0] is not sides[1] or sides[0] not in (Kind.INTS, Kind.BOOL, Kind.DTYPE) or isinstance(op, _ORDER):
            raise self.fail(f"{shown(node)}: {a_kind(sides[0])} and {a_kind(sides[1])} do not compare so")

    def _call(self, node: ast.Call) -> Kind:
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "torch":
            raise self.fail(slips.of_torch(node))
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(f"{shown(node)}: keywords and stars are for empty, zeros and their _like forms")
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if not isinstance(node.func, ast.Name):
            raise self.fail(f"{shown(node)}: {shown(node.func)} is no function of the directive language")
        name = node.func.id
        if name in MAKERS:
            raise self.fail(f"{shown(node)}: a tensor is made on a line of its own: 'name = {name}(...)'")
        if name not in FUNCTIONS:
            raise self.fail(self._no_function(name))
        return self._function(name, node)

    def _no_function(self, name: str) -> str:
        if name == "sm_count":
            return "sm_count is a number: write it without ()"
        if name in INSTEAD:
            return f"{name}() is not in the directive language: write {INSTEAD[name]}"
        near = difflib.get_close_matches(name, (*FUNCTIONS, *MAKERS), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"the functions are {', '.join(FUNCTIONS)}"
        return f"{name!r} is no function of the directive language; {hint}"

    def _function(self, name: str, node: ast.Call) -> Kind:
        wanted = {
            "cdiv": "two integers",
            "prod": "one shape, such as x.shape[:-1]",
            "sqrt": "one number",
            "next_power_of_2": "one integer",
            "min": "two or more numbers",
            "max": "two or more numbers",
        }[name]
        count = len(node.args)
        fits = count >= 2 if name in ("min", "max") else count == (2 if name == "cdiv" else 1)
        if not fits:
            raise self.fail(f"{name} takes {wanted}, got {shown(node)}")
        if name == "prod":
            if self.kind(node.args[0]) is not Kind.INTS:
                raise self.fail(f"prod takes {wanted}; {shown(node.args[0])} is {a_kind(self.kind(node.args[0]))}")
            return Kind.INT
        exact = name in ("cdiv", "next_power_of_2")
        kinds = [(self.integer if exact else self.number)(a, name) for a in node.args]
        return Kind.FLOAT if name == "sqrt" or Kind.FLOAT in kinds else Kind.INT

    def _method(self, node: ast.Call, method: ast.Attribute) -> Kind:
        if method.attr in ("numel", "dim", "element_size", "stride"):
            owner = self.tensor(method.value, node)
            if len(node.args) > (method.attr == "stride"):
                raise self.fail(f"{shown(node)}: write {owner}.{method.attr}()")
            if not node.args:
                return Kind.INTS if method.attr == "stride" else Kind.INT
            return self.integer(node.args[0], "stride()")
        self._attribute(method)  # says what is wrong with it, unless it is shape or dtype
        raise self.fail(f"{shown(node)}: {method.attr} is no method, leave out the ()")
