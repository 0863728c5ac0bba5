"""The directive language of raw cells: `//! name = expression` lines, parsed with `ast` and never evaluated as code.

What lives here: the declaration (statements in text order), its parser, and its evaluation in Python for the fake.
The native launcher is rendered from the same declaration in `build/launcher.py`.
"""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    DTYPE = "dtype"
    TENSOR = "tensor"
    NONE = "none"  # the literal None, only in `x is None`
    INTS = "ints"  # a shape or a slice of one, only inside sizes, prod() and comparisons
    STRING = "string"


@dataclass(frozen=True)
class Expression:
    """A checked expression: only nodes of the language, every name known, `kind` inferred."""

    tree: ast.expr
    kind: Kind
    text: str
    line: int


@dataclass(frozen=True)
class Let:
    """`rows = prod(x.shape[:-1])`: a scalar, or an alias of an argument or declared tensor (`epsilon = eps`)."""

    name: str
    value: Expression
    line: int


@dataclass(frozen=True)
class Unpack:
    """`*_, H, D = q.shape`: names from the right of the star (and from the left before it); `_` binds nothing."""

    names: tuple[str, ...]  # may hold "_" and one starred name, e.g. ("*_", "H", "D")
    value: Expression  # of kind INTS: x.shape, x.stride()
    line: int


@dataclass(frozen=True)
class Allocate:
    """`out = empty(M, N)`, `zeros(...)`, `empty_like(x, dtype=)`, `zeros_like(...)`: always contiguous.

    `role` is output, saved, gradient or workspace. `sizes` holds INT and INTS expressions (a splat), or is None when
    `like` names the tensor whose sizes are taken. `dtype` None: that of `like`, else of the first tensor argument.
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
    value: Expression
    line: int


@dataclass(frozen=True)
class Tune:
    """`tune BLOCK = 256, 128, 512`: the first value is the default."""

    name: str
    values: tuple[int | float, ...]
    line: int


@dataclass(frozen=True)
class Launch:
    """The geometry of one `__global__` function, in text order."""

    function: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression | None = None
    cluster: tuple[Expression, ...] = ()
    line: int = 0


Statement = Let | Unpack | Allocate | Require | Tune
