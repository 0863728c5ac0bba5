"""Defaults of arguments: which fit their type, how torch's schema spells them, what they are in Python."""

from __future__ import annotations

import math

import torch

from .errors import SchemaError

_PYTHON = {
    "SymInt": int,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "Scalar": (int, float, bool),
    "ScalarType": torch.dtype,
    "Device": (torch.device, str),
}


def spell_default(value: object) -> str:
    """A Python default in schema spelling.

    >>> spell_default(torch.float32), spell_default("a"), spell_default((1, 2))
    ('float32', '"a"', '[1, 2]')
    """
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(spell_default(v) for v in value) + "]"
    return repr(value)


def check_default(value: object, type_: str, where: str) -> None:
    """SchemaError, beginning with `where`, for a default that is not of the argument's type or that no schema spells.

    >>> check_default(2.5, "SymInt", "lab::f: argument 'k'")
    Traceback (most recent call last):
    SchemaError: lab::f: argument 'k' is a SymInt, its default 2.5 is not
    """
    if value is None:
        if not type_.endswith("?"):
            raise SchemaError(f"{where} is a {type_}, its default None is not; annotate it '... | None'")
        return
    plain = type_.removesuffix("?")
    is_list = plain.endswith("]")
    base = plain.partition("[")[0] if is_list else plain
    values = list(value) if is_list and isinstance(value, (list, tuple)) else [value]
    if base.startswith("Tensor"):
        hint = "give it none" if is_list else "annotate it 'Tensor | None = None'"
        raise SchemaError(f"{where}: a {type_} can have no default in a schema; {hint}")
    if is_list and base == "str":
        raise SchemaError(f"{where}: a list of strings can have no default in a schema; annotate it '| None = None'")
    wanted = _PYTHON.get(base, object)
    strict = base in ("SymInt", "int", "float")  # a bool is an int to Python, not to a schema
    fits = all(isinstance(v, wanted) and not (strict and isinstance(v, bool)) for v in values)
    if not fits or is_list is not isinstance(value, (list, tuple)):
        raise SchemaError(f"{where} is a {type_}, its default {value!r} is not")
    if any(isinstance(v, float) and not math.isfinite(v) for v in values):
        raise SchemaError(
            f"{where}: the default {value!r} has no spelling in a schema; annotate it '... | None = None' and put "
            f"{value!r} in for None"
        )


DTYPES = 46  # torch's numbers of dtypes are below it


def parsed_default(argument: torch._C.Argument) -> object:
    """The default of a `torch.Argument` as Python has it; torch keeps a dtype as its number."""
    value, kind = argument.default_value, str(argument.real_type)
    if "ScalarType" in kind and isinstance(value, int):
        if not 0 <= value < DTYPES:  # torch would look it up in a table, and crash beside it
            raise SchemaError(f"argument {argument.name!r}: its default {value} is the number of no dtype")
        return torch.ops.aten.empty.memory_format([0], dtype=value, device="meta").dtype
    if "Device" in kind and isinstance(value, str):
        return torch.device(value)
    return value
