"""A backward that was written in Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType

from ..errors import SchemaError
from ..holes import differentiable_type, spread
from ..reference import Definition, flat


def written(definition: Definition, incoming: dict, values: Sequence, outputs: Sequence, saved: Sequence) -> list:
    """`@op.backward` takes what it names and returns gradients in the order of the floating tensor arguments.

    `incoming` holds the gradient of each tensor result by its name.
    """
    schema, backward = definition.schema, definition.backward
    assert backward is not None
    given = dict(zip([a.name for a in schema.arguments], values, strict=True))
    given |= dict(zip([n for n in incoming if n not in schema.mutated], outputs, strict=False))
    given |= dict(zip(schema.saves, saved, strict=False))
    given |= {f"grad_{n}": g for n, g in incoming.items()}
    out = backward(**{n: given[n] for n in _names(backward)})
    out = list(out) if isinstance(out, (tuple, list)) else [out]
    moving = [v for v, a in zip(values, schema.arguments, strict=True) if _moves(v, a)]
    if len(moving) == 1 and isinstance(moving[0], (list, tuple)) and not (out and isinstance(out[0], (list, tuple))):
        out = [out]  # the gradients of the only argument, which is a list
    if len(out) != len(moving):
        raise SchemaError(
            f"{schema.qualname}: backward returned {len(out)} gradients, the floating-point tensor arguments are "
            f"{len(moving)}"
        )
    source = iter(out)
    placed: list = []
    for v, a in zip(values, schema.arguments, strict=True):
        if a.is_tensor_list:
            grads = next(source) if _moves(v, a) else [None] * len(v)
            placed.extend(spread(grads, v, f"{schema.qualname}: argument {a.name!r}"))
        elif a.is_tensor and v is not None:
            placed.append(next(source) if _moves(v, a) else None)
    return placed


def _moves(value: object, argument) -> bool:
    if argument.is_tensor_list:
        return any(differentiable_type(t) for t in flat(value))
    return argument.is_tensor and differentiable_type(value)


def _names(function: Callable) -> Sequence[str]:
    """Its parameters. To ask `inspect` at each call would take 30 us."""
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return tuple(inspect.signature(function).parameters)
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
