"""The batching rule of an op under `torch.vmap`: the user's, or the op once for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.autograd_function import VmapInfo, custom_function_call_vmap_helper
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from ..reference import Definition


def batched(
    definition: Definition, overload: torch._ops.OpOverload, note: Callable[[], None] = lambda: None
) -> Callable:
    """The kernel of `ns::name` on functorch's batching key; keyword-only tensors may be batched too.

    `note` is called where the user's own rule becomes a part of what is traced.
    """
    schema = definition.schema

    def call(*values):
        args, kwargs = definition.split(values)
        return overload(*args, **kwargs)

    def rule(info, in_dims, *values):
        if definition.vmap is not None:
            note()
            args, kwargs = definition.split(values)
            takes_keywords = any(a.is_tensor or a.is_tensor_list for a in schema.keyword_only)
            return definition.vmap(info, in_dims if takes_keywords else in_dims[: len(args)], *args, **kwargs)
        for a, dim in zip(schema.arguments, in_dims, strict=True):
            if a.mutated and not _moves(dim):
                raise RuntimeError(
                    f"vmap over {schema.qualname}: it mutates {a.name!r}, which is not batched; every element would "
                    "write to the same memory"
                )
        return one_by_one(info, in_dims, values, call)

    def kernel(keyset, *args, **kwargs):
        values = definition.order(args, kwargs)
        return custom_function_call_vmap_helper(retrieve_current_functorch_interpreter(), rule, call, *values)

    return kernel


def batched_backward(overload: torch._ops.OpOverload) -> Callable:
    """The same for `ns::name_backward`, whose arguments are all positional."""

    def rule(info, in_dims, *values):
        return one_by_one(info, in_dims, values, overload)

    def kernel(keyset, *values):
        return custom_function_call_vmap_helper(retrieve_current_functorch_interpreter(), rule, overload, *values)

    return kernel


def one_by_one(info: VmapInfo, in_dims: Sequence, values: Sequence, call: Callable) -> tuple:
    """Call once for each element and stack the results; an empty batch is one of zeros, cut off again."""
    count = info.batch_size
    results = [
        call(*[_element(v, d, i, empty=not count) for v, d in zip(values, in_dims, strict=True)])
        for i in range(max(count, 1))
    ]
    return _stacked(results, count)


def _moves(dim: object) -> bool:
    return all(d is not None for d in dim) if isinstance(dim, (tuple, list)) else dim is not None


def _element(value: object, dim: Any, index: int, *, empty: bool) -> object:
    if isinstance(value, (tuple, list)) and isinstance(dim, (tuple, list)):
        return [_element(v, d, index, empty=empty) for v, d in zip(value, dim, strict=True)]
    if dim is None or not isinstance(value, torch.Tensor):
        return value
    return value.sum(dim).to(value.dtype) if empty else value.select(dim, index)


def _stacked(results: list, count: int) -> tuple:
    """The results of all elements as one, and where its batch dimension is: 0, or None for what is no tensor."""
    first = results[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(results)[:count], 0
    if isinstance(first, (tuple, list)):
        columns = [_stacked(list(c), count) for c in zip(*results, strict=True)]
        return type(first)(c for c, _ in columns), type(first)(d for _, d in columns)
    return first, None
