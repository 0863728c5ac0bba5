"""The autograd nodes of an op and of its backward: gradients of every order, under functorch's transforms too.

They stand on torch's Autograd key, below which the kernels are. Nothing here registers names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch._C._functorch import peek_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from .errors import SchemaError
from .pullback import cut, differentiable_type, gradient_flags, is_absent, pulled_back, refill, refuse_random
from .reference import Definition, flat
from .schema import Schema


class _Forward(_SingleLevelFunction):
    """The node of `ns::name`. Single level: the dispatcher has taken care of functorch's levels before it gets here."""

    @staticmethod
    def forward(ctx, op, keyset, values, *tensors):
        definition: Definition = op.definition
        schema = definition.schema
        args, kwargs = definition.split(values)
        before = values  # what backward sees of a mutated argument is its value from before
        if schema.mutated:
            before = [_clone(v) if a.mutated else v for v, a in zip(values, schema.arguments, strict=True)]
        if schema.saves:
            results = op.forward_op(*args, **kwargs)
            results = list(results) if isinstance(results, (tuple, list)) else [results]
            outputs, saved = results[: len(schema.outputs)], results[len(schema.outputs) :]
        else:
            results = op.public_op.redispatch(keyset & torch._C._after_autograd_keyset, *args, **kwargs)
            outputs = [] if results is None else list(results) if len(schema.outputs) > 1 else [results]
            saved = []
        refuse_random(definition, values)
        ctx.op, ctx.values, ctx.outputs_are_lists = op, before, [isinstance(o, (list, tuple)) for o in outputs]
        ctx.set_materialize_grads(False)
        mutated = _mutated(schema, values)
        if mutated:
            ctx.mark_dirty(*mutated)
        results_flat = mutated + flat(outputs)
        ctx.counts = [len(o) if isinstance(o, (list, tuple)) else 1 for o in outputs]
        ctx.mark_non_differentiable(
            *(
                t
                for t, f in zip(results_flat, gradient_flags(definition, before, len(results_flat)), strict=True)
                if not f
            )
        )
        _save(ctx, before, outputs, saved)
        return tuple(results_flat)

    @staticmethod
    def backward(ctx, *grads):
        op = ctx.op
        schema = op.definition.schema
        values, outputs, saved = _restore(ctx)
        incoming = _group(list(grads), ctx.counts, schema, values)
        results = op.backward_op(*incoming, *values, *outputs, *saved)
        results = [results] if len(schema.tensors) == 1 else list(results)
        found = iter(results)
        flat_grads: list = []
        for value, a in zip(values, schema.arguments, strict=True):
            if a.is_tensor_list:
                flat_grads.extend(next(found))
            elif a.is_tensor:
                gradient = next(found)
                if value is not None:
                    flat_grads.append(gradient)
        wanted = ctx.needs_input_grad[3:]
        kept = [g if w and not is_absent(g) else None for g, w in zip(flat_grads, wanted, strict=True)]
        return (None, None, None, *kept)


def _mutated(schema: Schema, values: Sequence) -> list[torch.Tensor]:
    if not schema.mutated:
        return []
    return flat([v for v, a in zip(values, schema.arguments, strict=True) if a.mutated])


def _clone(value: object) -> object:
    return [t.clone() for t in value] if isinstance(value, (list, tuple)) else value.clone()


def _save(ctx, values: Sequence, outputs: Sequence, saved: Sequence) -> None:
    """Tensors through `save_for_backward`, so that hooks, version checks and double backward see them."""
    tensors = flat(values)
    ctx.shape = [
        len(v) if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor) else isinstance(v, torch.Tensor)
        for v in values
    ]
    ctx.values = [None if isinstance(v, torch.Tensor) else v for v in values]
    ctx.spans = (len(tensors), len(flat(outputs)))
    ctx.save_for_backward(*tensors, *flat(outputs), *saved)


def _restore(ctx) -> tuple[list, list, list]:
    tensors = list(ctx.saved_tensors)
    given, gave = ctx.spans
    inputs, outputs, saved = tensors[:given], tensors[given : given + gave], tensors[given + gave :]
    values, position = [], 0
    for shape, value in zip(ctx.shape, ctx.values, strict=True):
        if shape is True:
            values.append(inputs[position])
            position += 1
        elif shape is False:
            values.append(value)
        else:
            values.append(inputs[position : position + shape])
            position += shape
    grouped, position = [], 0
    for count, is_list in zip(ctx.counts, ctx.outputs_are_lists, strict=True):
        grouped.append(outputs[position : position + count] if is_list else outputs[position])
        position += count
    return values, grouped, saved


def _group(grads: list, counts: Sequence[int], schema: Schema, values: Sequence) -> list:
    """Flat gradients as the backward op takes them: a list where the output or mutated argument is one."""
    sizes = [
        (len(v), True) if a.is_tensor_list else (1, False)
        for v, a in zip(values, schema.arguments, strict=True)
        if a.mutated
    ]
    sizes += [(c, t.endswith("[]")) for c, t in zip(counts, schema.output_types, strict=True)]
    grouped, position = [], 0
    for count, is_list in sizes:
        grouped.append(grads[position : position + count] if is_list else grads[position])
        position += count
    return grouped


def differentiable(op) -> Callable:
    """The slow half of the Autograd kernel of `ns::name`: called only where a gradient may be wanted."""

    def call(keyset, values: list):
        definition: Definition = op.definition
        if forward_ad._current_level >= 0:
            return _under_forward_ad(definition, values)
        for t in _mutated(definition.schema, values):
            if t.requires_grad and t.is_leaf:  # torch's own check comes after the forward has written
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        with enable_single_level_autograd_function() if peek_interpreter_stack() else nullcontext():
            results = _Forward.apply(op, keyset, values, *flat(values))
        schema = definition.schema
        if not schema.outputs:
            return None
        results = results[len(_mutated(schema, values)) :]
        if all(t == "Tensor" for t in schema.output_types):
            return results[0] if len(schema.outputs) == 1 else tuple(results)
        return _regroup(results, definition, values)

    return call


def _regroup(results: Sequence, definition: Definition, values: Sequence) -> object:
    """Flat results of an op with list outputs, in the schema's grouping; the last list takes what is left."""
    types = definition.schema.output_types
    remaining, grouped = list(results), []
    for i, t in enumerate(types):
        if t.endswith("[]"):
            rest = sum(1 for u in types[i + 1 :] if not u.endswith("[]"))
            count = len(remaining) - rest
            grouped.append(remaining[:count])
            remaining = remaining[count:]
        else:
            grouped.append(remaining.pop(0))
    return grouped[0] if len(types) == 1 else tuple(grouped)


def _under_forward_ad(definition: Definition, values: list) -> object:
    """Forward mode sees through the op: the reference itself runs, as plain torch code."""
    if definition.reference is None:
        raise SchemaError(
            f"{definition.schema.qualname} has no reference, so forward-mode AD (jvp, jacfwd) cannot see into it"
        )
    args, kwargs = definition.split(values)
    return definition.reference(*args, **kwargs)


class _Backward(_SingleLevelFunction):
    """The node of `ns::name_backward`: its own gradients come from the vjp of the reference's vjp."""

    @staticmethod
    def forward(ctx, op, keyset, arguments, *tensors):
        ctx.op, ctx.arguments = op, [None if isinstance(a, torch.Tensor) else a for a in arguments]
        ctx.is_tensor = [isinstance(a, torch.Tensor) for a in arguments]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        results = op.backward_op.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
        ctx.results = [results] if isinstance(results, torch.Tensor) else results
        flat_results = flat(ctx.results)
        ctx.mark_non_differentiable(*[r for r in flat_results if is_absent(r)])
        ctx.results = None
        return tuple(flat_results)

    @staticmethod
    def backward(ctx, *grads):
        definition = ctx.op.definition
        tensors = list(ctx.saved_tensors)
        loose = [i for i, t in enumerate(tensors) if differentiable_type(t)]
        # refill keeps lists and scalars; a placeholder marks where a single tensor stood.
        template = [tensors[0] if single else a for single, a in zip(ctx.is_tensor, ctx.arguments, strict=True)]

        def function(*moving):
            placed = list(tensors)
            for i, t in zip(loose, moving, strict=True):
                placed[i] = t
            out = pulled_back(definition, refill(template, placed))
            return tuple(flat([out] if isinstance(out, torch.Tensor) else out))

        results, pull = torch.func.vjp(function, *[tensors[i] for i in loose])
        found = pull(tuple(torch.zeros_like(r) if g is None else g for g, r in zip(grads, results, strict=True)))
        placed: list = [None] * len(tensors)
        for i, g in zip(loose, found, strict=True):
            placed[i] = g
        return (None, None, None, *placed)


def differentiable_backward(op) -> Callable:
    """The Autograd kernel of `ns::name_backward`."""

    def call(keyset, *arguments):
        tensors = flat(list(arguments))
        if forward_ad._current_level >= 0:
            return pulled_back(op.definition, arguments)
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            with enable_single_level_autograd_function():
                results = _Backward.apply(op, keyset, list(arguments), *tensors)
            return _as_schema(op.definition.schema, results, arguments)
        return op.backward_op.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)

    return call


def _as_schema(schema: Schema, results: Sequence, arguments: Sequence) -> object:
    _, values, _, _ = cut(schema, arguments)
    source = iter(results)
    grouped = [
        [next(source) for _ in v] if a.is_tensor_list else next(source)
        for v, a in zip(values, schema.arguments, strict=True)
        if a.is_tensor or a.is_tensor_list
    ]
    return grouped[0] if len(grouped) == 1 else tuple(grouped)
