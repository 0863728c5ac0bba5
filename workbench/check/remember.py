"""Keeping the reference's answers between two edits, as long as nothing that they came from can have changed.

An answer is kept on its case's recipe, so it goes when the case does. What a reference is made of (its code, what it
closes over, the globals it names) is compared by identity; if that holds something that may change in place, such as
a list or a module of one's own, nothing is kept.
"""

from __future__ import annotations

import types
from collections.abc import Callable

import torch
from torch import Tensor

from ..case import HELD_BYTES, Case
from ..inputs import tensors_in
from ..register.traces import names
from ..schema import Schema
from .expect import Expected, expected
from .gradients import expected_gradients

FIXED = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, types.BuiltinFunctionType)
LIBRARIES = ("torch", "math", "numpy", "operator", "functools")
DEEP = 4  # helper functions of helper functions that are followed


def answer(
    reference: Callable | None, schema: Schema, case: Case, compare: Callable | None = None, *, device: str = "cpu"
) -> Expected:
    """`expected(...)`, remembered.

    >>> answer(rmsnorm.reference, rmsnorm.schema, case) is answer(rmsnorm.reference, rmsnorm.schema, case)
    True
    """
    return _remembered("values", case, schema, (reference, compare), device, lambda: expected(
        reference, schema, case, compare, device=device
    ))  # fmt: skip


def gradient_answer(reference: Callable | None, schema: Schema, case: Case, *, device: str = "cpu") -> Expected:
    """`expected_gradients(...)`, remembered."""
    return _remembered("gradients", case, schema, (reference,), device, lambda: expected_gradients(
        reference, schema, case, device=device
    ))  # fmt: skip


def ingredients(function: Callable | None, depth: int = DEEP) -> list | None:
    """All that decides what a function computes, to be compared by identity; None where that cannot be told.

    >>> ingredients(lambda x: x * scale)        # holds its code and `scale`
    """
    if function is None:
        return [None]
    if not isinstance(function, types.FunctionType):
        return None
    found: list = [function.__code__, function.__defaults__, function.__kwdefaults__]
    try:
        values = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a name that is not bound yet
        return None
    for name in names(function.__code__):
        if name in function.__globals__:
            values.append(function.__globals__[name])
    for value in values:
        if isinstance(value, Tensor):
            found += [value, value._version]
        elif isinstance(value, FIXED) or _of_library(value):
            found.append(value)
        elif value is not function:
            inside = ingredients(value, depth - 1) if depth else None
            if inside is None:
                return None
            found += inside
    return found


def _remembered(
    kind: str, case: Case, schema: Schema, functions: tuple, device: str, make: Callable[[], Expected]
) -> Expected:
    made_of: list = []
    for f in functions:
        part = ingredients(f)
        if part is None:
            return make()
        made_of += part
    kept = vars(case.recipe).setdefault("answers", {})
    key = (kind, case, str(schema), device)
    former = kept.get(key)
    if former and len(former[0]) == len(made_of) and all(map(_same, former[0], made_of)):
        return former[1]
    found = make()
    size = sum(x.numel() * x.element_size() for o in found.outputs for x in tensors_in([o.value, o.true]))
    if size <= HELD_BYTES:
        kept[key] = (made_of, found)
    return found


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, str, tuple, dict)) and a == b)


def _of_library(value: object) -> bool:
    """A module of torch or the like, or a function or class from one: these do not change."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return (name or "").split(".", maxsplit=1)[0] in LIBRARIES
