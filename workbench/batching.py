"""The batching rule of an op under `torch.vmap`: the user's, or the op once for each element."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .reference import Definition
from .schema import Schema


def batched(definition: Definition, overload: torch._ops.OpOverload) -> Callable:
    """The batching rule: the user's, the reference under vmap, or the kernel once for each element."""
    schema = definition.schema

    def rule(info, in_dims, *args, **kwargs):
        if definition.vmap is not None:
            return definition.vmap(info, in_dims, *args, **kwargs)
        values = definition.order(args, kwargs)
        dims = [*in_dims, *[None] * (len(values) - len(in_dims))]
        unbatched = [a.name for a, d in zip(schema.arguments, dims, strict=True) if a.mutated and d is None]
        if unbatched:
            raise RuntimeError(
                f"vmap over {schema.qualname}: it mutates {unbatched[0]!r}, which is not batched; every element "
                "would write to the same memory"
            )
        results = []
        for i in range(info.batch_size):
            call_args, call_kwargs = definition.split(
                [_element(v, d, i) for v, d in zip(values, dims, strict=True)]
            )
            results.append(overload(*call_args, **call_kwargs))
        return _stacked(results, schema)

    return rule


def _element(value: object, dim: object, index: int) -> object:
    if isinstance(value, (tuple, list)) and isinstance(dim, (tuple, list)):
        return [_element(v, d, index) for v, d in zip(value, dim, strict=True)]
    return value if dim is None or not isinstance(value, torch.Tensor) else value.select(dim, index)


def _stacked(results: list, schema: Schema) -> tuple:
    if not schema.outputs:
        return None, None
    if len(schema.outputs) == 1 and schema.output_types[0] == "Tensor":
        return torch.stack(results), 0
    columns = list(zip(*results, strict=True))
    return tuple(torch.stack(c) for c in columns), tuple(0 for _ in columns)
