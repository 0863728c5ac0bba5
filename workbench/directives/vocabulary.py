"""The words of the directive language, the names that a line may use, and how nodes and kinds read in a message."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .nodes import Kind

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
          "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")  # fmt: skip
FUNCTIONS = ("cdiv", "min", "max", "prod", "sqrt", "next_power_of_2")
MAKERS = ("empty", "zeros", "empty_like", "zeros_like")
WORDS = frozenset(
    (
        *DTYPES,
        *FUNCTIONS,
        *MAKERS,
        "sm_count",
        "torch",
        "grid",
        "block",
        "shared",
        "cluster",
        "require",
        "tune",
        "flags",
        "tensor_map",
        "cooperative",
    )
)
MAX_INTEGER = 2**63 - 1

NUMBERS = (Kind.INT, Kind.FLOAT)
# What people write first, and what it is here.
INSTEAD = {
    "size": "x.shape[i]",
    "sizes": "x.shape",
    "ndim": "x.dim()",
    "ndimension": "x.dim()",
    "itemsize": "x.element_size()",
    "len": "x.dim()",
    "nelement": "x.numel()",
    "device": "nothing: tensors are made where the arguments are",
    **dict.fromkeys(("ceil_div", "ceildiv", "div_up", "divup", "DIVUP", "CEIL_DIV"), "cdiv(a, b)"),
    "math": "sqrt(v), without a module",
    "abs": "max(v, -v)",
    "int": "a // b",
    "strides": "x.stride()",
    "data_ptr": "the tensor's name as a kernel parameter",
    "sizeof": "x.element_size(), or 4 for a float",
    "dim3": "the sizes with commas between, as in 'block = 32, 8'",
    "ceil": "cdiv(a, b)",
    "triton": "cdiv(a, b), without a module",
}


@dataclass(frozen=True)
class Scope:
    """The names that a line may use. `later` are those that lines further down define."""

    kinds: dict[str, Kind]
    maybe_none: frozenset[str] = frozenset()  # arguments of type `Tensor?`, `float?`, ..., and their aliases
    later: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()  # optional names that a condition has shown not to be None
    constants: Mapping[str, str] = field(default_factory=dict)  # of the C++ text, which lines cannot use

    def but_known(self, names: Iterable[str]) -> Scope:
        return replace(self, known=self.known | frozenset(names))


def not_none(test: Any, truth: bool) -> set[str]:
    """The names that are surely not None when `test` came out as `truth`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not_none(test.operand, not truth)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is truth:
        return set().union(*(not_none(v, truth) for v in test.values))
    alone = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name)
    return {test.left.id} if alone and isinstance(test.ops[0], ast.IsNot if truth else ast.Is) else set()


def shown(node: ast.AST, quote: str = "'") -> str:
    text = ast.unparse(node)
    return quote + (text if len(text) <= 60 else text[:57] + "...") + quote


def a_kind(kind: Kind) -> str:
    words = {
        Kind.INT: "an integer",
        Kind.INTS: "a shape",
        Kind.NONE: "None",
        Kind.OPAQUE: "an argument of another type",
    }
    return words.get(kind, f"a {kind.value}")


# The keywords of C++20, alternative spellings of operators included: nothing in a cell can bear such a name.
_CPP = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int "
    "long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template "
    "this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while "
    "xor xor_eq"
)
CPP_WORDS = frozenset(_CPP.split())


def function_name(op: str) -> str:
    """What the C++ function of an op is called: as the op, with `_` behind a keyword.

    >>> function_name("scale"), function_name("double")
    ('scale', 'double_')
    """
    return f"{op}_" if op in CPP_WORDS else op


def why_no_name(name: str) -> str:
    if name in WORDS:
        return "it is a word of the directive language"
    if name in CPP_WORDS:
        return "it is a keyword of C++"
    return "names have ASCII letters, digits and '_', and do not begin with two underscores"
