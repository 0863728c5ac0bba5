"""What a raw cell declares: the statements of its directives and the `Declaration` that holds them.

Plain data. Parsing is in `parser`, checking of expressions in `expressions`, binding in `binding`, evaluation in
Python in `evaluate`, what a launcher depends on in `structure`; the native launcher is rendered from the same data in
`build/launcher.py`.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

from ..schema import Argument, Schema
from ..source import Function


class Kind(enum.Enum):
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    DTYPE = "dtype"
    TENSOR = "tensor"
    NONE = "none"  # the literal None, only in `x is None`
    INTS = "ints"  # a shape or a slice of one, only inside sizes, prod(), Unpack and comparisons
    STRING = "string"
    OPAQUE = "opaque"  # an argument that directives cannot use: int[], Device, ...


@dataclass(frozen=True)
class Expression:
    """A checked expression: only nodes of the language, every name known, `kind` inferred."""

    tree: ast.expr
    kind: Kind
    text: str
    line: int


@dataclass(frozen=True)
class Let:
    """`rows = prod(x.shape[:-1])`: an INT, FLOAT or BOOL, or an alias of an argument or tensor (`epsilon = eps`)."""

    name: str
    value: Expression
    line: int


@dataclass(frozen=True)
class Unpack:
    """`*_, H, D = q.shape`: names from the right of the star (and from the left before it); `_` binds nothing."""

    names: tuple[str, ...]  # may hold "_" and one starred name, which is always "*_"
    value: Expression  # of kind INTS: x.shape, x.stride() or a slice of these
    line: int


@dataclass(frozen=True)
class Allocate:
    """`out = empty(M, N)`, `zeros(...)`, `empty_like(x, dtype=)`, `zeros_like(...)`: always contiguous.

    `role` is output, saved, gradient or workspace. `sizes` holds INT and INTS expressions (an INTS one is splatted
    in place, its tree has no star), or is None when `like` names the tensor whose sizes are taken. `dtype` None:
    that of `like`, else of the first tensor argument.
    """

    name: str
    zeroed: bool
    sizes: tuple[Expression, ...] | None
    like: str | None
    dtype: Expression | None
    role: str
    line: int


@dataclass(frozen=True)
class Require:
    value: Expression  # of kind BOOL
    line: int


@dataclass(frozen=True)
class Tune:
    """`tune BLOCK = 256, 128, 512`: the first value is the default."""

    name: str
    values: tuple[int | float, ...]
    line: int


@dataclass(frozen=True)
class Launch:
    """The geometry of one `__global__` function, in text order; each expression is an INT."""

    function: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression | None = None
    cluster: tuple[Expression, ...] = ()
    line: int = 0


Statement = Let | Unpack | Allocate | Require | Tune


@dataclass(frozen=True)
class Declaration:
    """All that a raw cell says around its functions.

    >>> declaration = parse(source, schema, functions=functions(source.text, "cpp", source.first_line))
    >>> list(declaration.values)
    ['x', 'w', 'eps', 'cols', 'rows', 'out']

    `arguments` are those of the native op: the schema's own for the forward; for the backward a `Tensor?` named
    `grad_OUT` for each output (for each mutated argument of a mutating op), then the schema's arguments unmarked,
    the outputs and the saved tensors. `functions` are the functions to call, in order: one in C++, those with a
    grid in CUDA. Parameters bind by name, so a function's `parameters` say which value each of them takes.
    """

    schema: Schema
    entry: str  # "forward" or "backward"
    arguments: tuple[Argument, ...]
    statements: tuple[Statement, ...]
    launches: tuple[Launch, ...] = ()
    flags: tuple[str, ...] = ()  # as written; `{NAME}` stands for a tuned value, see `flags_for`
    functions: tuple[Function, ...] = ()

    @cached_property
    def values(self) -> dict[str, Kind]:
        """Every named value and its kind: arguments, then declared names in text order. Its order is the slots'."""
        named = {a.name: kind_of(a) for a in self.arguments}
        for s in self.statements:
            if isinstance(s, Let):
                named[s.name] = s.value.kind
            elif isinstance(s, Unpack):
                named.update(dict.fromkeys(bound_names(s), Kind.INT))
            elif isinstance(s, Allocate):
                named[s.name] = Kind.TENSOR
            elif isinstance(s, Tune):
                named[s.name] = Kind.FLOAT if isinstance(s.values[0], float) else Kind.INT
        return named

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """All tensors, arguments first, then allocations in text order. Aliases are not repeated."""
        return (*(a.name for a in self.arguments if a.is_tensor), *(a.name for a in self.allocations))

    @cached_property
    def allocations(self) -> tuple[Allocate, ...]:
        return tuple(s for s in self.statements if isinstance(s, Allocate))

    def _of_role(self, role: str) -> tuple[str, ...]:
        return tuple(a.name for a in self.allocations if a.role == role)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the declared outputs, in the schema's order."""
        return tuple(n for n in self.schema.outputs if n in self._of_role("output"))

    @property
    def saved(self) -> tuple[str, ...]:
        """Names of the declared saved tensors, in the schema's order."""
        return tuple(n for n in self.schema.saves if n in self._of_role("saved"))

    @property
    def gradients(self) -> tuple[str, ...]:
        """Names of the declared gradients, in the order of the schema's arguments."""
        return tuple(f"grad_{a.name}" for a in self.schema.arguments if f"grad_{a.name}" in self._of_role("gradient"))

    @property
    def workspace(self) -> tuple[str, ...]:
        return self._of_role("workspace")

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Names that are another name of an argument or tensor: `epsilon = eps` gives {"epsilon": "eps"}."""
        found: dict[str, str] = {}
        for s in self.statements:
            if isinstance(s, Let) and isinstance(s.value.tree, ast.Name) and s.value.tree.id in self.values:
                found[s.name] = found.get(s.value.tree.id, s.value.tree.id)
        return found

    @cached_property
    def tunes(self) -> dict[str, Tune]:
        return {s.name: s for s in self.statements if isinstance(s, Tune)}

    def flags_for(self, tuned: Mapping[str, int | float]) -> tuple[str, ...]:
        """The flags with tuned values in them: the `{REGS}` of `-maxrregcount={REGS}`, or its first."""
        values = {name: tuned.get(name, t.values[0]) for name, t in self.tunes.items()}
        put = lambda found: str(values.get(found[1], found[0]))  # noqa: E731
        return tuple(re.sub(r"\{(\w+)\}", put, word) for word in self.flags)

    @property
    def first_tensor(self) -> str | None:
        """The argument whose dtype and device allocations take: the first `Tensor`, else the first `Tensor?`."""
        tensors = [a for a in self.schema.arguments if a.is_tensor]
        return next((a.name for a in tensors if not a.optional), tensors[0].name if tensors else None)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """Every expression, statements in text order and then the launches."""
        return (
            *(e for s in self.statements for e in expressions_of(s)),
            *(e for launch in self.launches for e in expressions_of(launch)),
        )

    @cached_property
    def strides_read(self) -> frozenset[str]:
        """The arguments of which a directive reads strides: these reach the kernel as they are."""
        read = (
            n.value.id
            for e in self.expressions
            for n in ast.walk(e.tree)
            if isinstance(n, ast.Attribute) and n.attr == "stride" and isinstance(n.value, ast.Name)
        )
        return frozenset(self.aliases.get(name, name) for name in read)

    @cached_property
    def _literal_nodes(self) -> tuple[Any, ...]:
        return tuple(n for e in self.expressions for n in ast.walk(e.tree) if is_number(n))

    @property
    def literals(self) -> tuple[int | float, ...]:
        """Every number written in an expression, in the order of `expressions`. Tuned values are not among them."""
        return tuple(n.value for n in self._literal_nodes)

    @cached_property
    def _literal_positions(self) -> dict[int, int]:
        return {id(n): i for i, n in enumerate(self._literal_nodes)}

    def literal_index(self, node: ast.Constant) -> int:
        """The position in `literals` of a number's node in one of this declaration's own trees."""
        return self._literal_positions[id(node)]


def bound_names(statement: Statement) -> tuple[str, ...]:
    """The names that a statement defines: H and D for `*_, H, D = q.shape`."""
    if isinstance(statement, Unpack):
        return tuple(n for n in statement.names if n not in ("_", "*_"))
    return () if isinstance(statement, Require) else (statement.name,)


def is_number(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def expressions_of(item: Statement | Launch) -> Iterator[Expression]:
    """The expressions that one statement or launch holds, left to right."""
    if isinstance(item, (Let, Unpack, Require)):
        yield item.value
    elif isinstance(item, Allocate):
        yield from item.sizes or ()
        if item.dtype:
            yield item.dtype
    elif isinstance(item, Launch):
        yield from (*item.grid, *item.block, *((item.shared,) if item.shared else ()), *item.cluster)


def kind_of(argument: Argument) -> Kind:
    """`SymInt?` is an INT that may be None; lists and devices are OPAQUE."""
    kinds = {
        "Tensor": Kind.TENSOR,
        "int": Kind.INT,
        "SymInt": Kind.INT,
        "float": Kind.FLOAT,
        "bool": Kind.BOOL,
        "ScalarType": Kind.DTYPE,
        "str": Kind.STRING,
    }
    return kinds.get(argument.type.removesuffix("?"), Kind.OPAQUE)
