"""The functions of the directive language in Python, on numbers and on torch's symbols.

Every operation here keeps sizes symbolic: `min` on two SymInts would compare and so fix them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch


def cdiv(a: Any, b: Any) -> Any:
    return -(-a // b)


def next_power_of_2(n: Any) -> Any:
    if isinstance(n, torch.SymInt):  # a ladder of choices: a bit count has no symbolic form
        return functools.reduce(lambda low, i: choose(n > 2**i, 2 ** (i + 1), low), range(40), 1)
    return 1 if n <= 1 else 1 << (int(n) - 1).bit_length()


def choose(test: Any, then: Any, other: Any) -> Any:
    """`then if test else other`, left open while `test` is symbolic; two dtypes cannot be left open."""
    if not isinstance(test, torch.SymBool) or isinstance(then, torch.dtype):
        return then if test else other
    floats = isinstance(then, (float, torch.SymFloat)) or isinstance(other, (float, torch.SymFloat))
    sides = (torch.sym_float(v) if floats else v for v in (then, other))
    return torch.sym_ite(test, *(_symbolic(v, test) for v in sides))


def _symbolic(value: Any, beside: torch.SymBool) -> Any:
    """A plain number as the same number of torch's symbols, since sym_ite takes two of one type."""
    if isinstance(value, bool):
        return torch.SymBool(beside.node.wrap_bool(value))
    if isinstance(value, int):
        return torch.SymInt(beside.node.wrap_int(value))
    return torch.SymFloat(beside.node.wrap_float(value)) if isinstance(value, float) else value


def _sqrt(v: Any) -> Any:
    return torch.sym_sqrt(v) if isinstance(v, (torch.SymInt, torch.SymFloat)) else math.sqrt(v)


FUNCTIONS: dict[str, Callable] = {
    "cdiv": cdiv,
    "min": lambda *v: functools.reduce(torch.sym_min, v),
    "max": lambda *v: functools.reduce(torch.sym_max, v),
    "prod": lambda sizes: functools.reduce(operator.mul, sizes, 1),
    "sqrt": _sqrt,
    "next_power_of_2": next_power_of_2,
}
