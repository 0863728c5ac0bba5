"""The autograd nodes of an op and of its backward: gradients of every order, under functorch's transforms too.

They stand on torch's Autograd key, below which the kernels are. Nothing here registers names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar

import torch
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch._C._profiler import _RecordFunctionFast
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from ..errors import SchemaError
from ..holes import differentiable_type, hollow, opened, refill
from ..reference import Definition, flat
from ..schema import Schema
from .pullback import cut, gradient_flags, is_absent, pulled_back, refuse_random
from .traces import made_by, refuse_another


class _Forward(_SingleLevelFunction):
    """The node of `ns::name`. Single level: the dispatcher has taken care of functorch's levels before it gets here.

    What a mutating op writes to are clones here, which come out as results: `differentiable` copies them back.
    """

    apply: ClassVar[Callable]  # torch's own, which its stubs leave out

    @staticmethod
    def forward(ctx, op, keyset, values, template, *tensors):
        definition: Definition = op.definition
        schema = definition.schema
        written = values
        if schema.mutated:
            written = [_clone(v) if a.mutated else v for v, a in zip(values, schema.arguments, strict=True)]
        args, kwargs = definition.split(written)
        if schema.saves:
            with _levels_below():
                results = op.forward_op(*args, **kwargs)
            results = list(results) if isinstance(results, (tuple, list)) else [results]
            outputs, saved = results[: len(schema.outputs)], results[len(schema.outputs) :]
        else:
            below = keyset & torch._C._after_autograd_keyset
            with _seen(schema) if torch.autograd._profiler_enabled() else _levels_below():
                results = op.public_op.redispatch(below, *args, **kwargs)
            outputs = [] if results is None else list(results) if len(schema.outputs) > 1 else [results]
            saved = []
        holes = hollow(outputs)
        template.extend(holes)
        if not definition.backward_is_kernel(tensors[0].device.type):
            refuse_random(definition, values)
        mutated = [v for v, a in zip(written, schema.arguments, strict=True) if a.mutated] if schema.mutated else []
        outputs = [o for o in outputs if isinstance(o, (torch.Tensor, list, tuple))]
        ctx.op, ctx.values = op, hollow(values)
        ctx.outputs = holes if len(outputs) == len(holes) else hollow(outputs)
        ctx.results = hollow(mutated + outputs) if mutated else ctx.outputs
        ctx.set_materialize_grads(False)
        ctx.made = made_by(op, tensors[0].device.type)
        gave = flat(outputs)
        found = flat(mutated) + gave
        flags = gradient_flags(definition, values, len(found))
        if not all(flags):
            ctx.mark_non_differentiable(*(t for t, f in zip(found, flags, strict=True) if not f))
        ctx.spans = (len(tensors), len(gave))
        # Through save_for_backward, so that hooks, version checks and double backward see them.
        ctx.save_for_backward(*tensors, *gave, *saved)
        return tuple(found)

    @staticmethod
    def backward(ctx, *grads):
        if all(g is None for g in grads):  # nothing flows back, and a kernel would get nothing but null
            return (None,) * len(ctx.needs_input_grad)
        op, schema, tensors = ctx.op, ctx.op.definition.schema, ctx.saved_tensors
        refuse_another(op, ctx.made, tensors[0].device.type)
        given, gave = ctx.spans
        values = refill(ctx.values, tensors[:given])
        outputs = refill(ctx.outputs, tensors[given : given + gave])
        incoming = refill(ctx.results, grads)
        results = op.backward_op(*incoming, *values, *outputs, *tensors[given + gave :])
        results = [results] if len(schema.tensors) == 1 else results
        owners = [v for v, a in zip(values, schema.arguments, strict=True) if a.is_tensor or a.is_tensor_list]
        gradients = [g for g, v in zip(opened(results), opened(owners), strict=True) if v is not None]
        wanted = ctx.needs_input_grad[4:]
        kept = [g if w and not is_absent(g) else None for g, w in zip(gradients, wanted, strict=True)]
        return (None, None, None, None, *kept)


@contextmanager
def _seen(schema: Schema) -> Iterator[None]:
    """`_levels_below`, with an event for a profiler: a redispatch leaves none, and the node would have its time.

    It is named as the op that is called where something is saved.
    """
    with _levels_below(), _RecordFunctionFast(f"{schema.qualname}_forward"):
        yield


def _levels_below() -> AbstractContextManager:
    """A node's forward runs without gradients, which the outer levels of a transform must not inherit."""
    return torch.enable_grad() if peek_interpreter_stack() else nullcontext()


def _mutated(schema: Schema, values: Sequence) -> list[torch.Tensor]:
    if not schema.mutated:
        return []
    return flat([v for v, a in zip(values, schema.arguments, strict=True) if a.mutated])


def _clone(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_clone(t) for t in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def differentiable(op) -> Callable:
    """The slow half of the Autograd kernel of `ns::name`: called only where a gradient may be wanted."""

    def call(keyset, values: list):
        definition: Definition = op.definition
        schema, tensors = definition.schema, flat(values)
        if forward_mode():
            op.registration._traces.note()  # the reference becomes a part of what is traced
            return _under_forward_ad(definition, values)
        template: list = []  # the outputs without their tensors, filled in by the node
        mutated = _mutated(schema, values)
        if mutated:  # what backward sees of a mutated argument is its value from before
            values = [_clone(v) if a.mutated else v for v, a in zip(values, schema.arguments, strict=True)]
            tensors = flat(values)
        with enable_single_level_autograd_function() if peek_interpreter_stack() else nullcontext():
            results = _Forward.apply(op, keyset, values, template, *tensors)
        for t, written in zip(mutated, results, strict=False):
            t.copy_(written)  # torch's own rules for leaves, views and versions hold, before anything is written
        placed = refill(template, results[len(mutated) :])
        return None if not placed else placed[0] if len(placed) == 1 else tuple(placed)

    return call


def forward_mode() -> bool:
    """Is forward-mode AD on: a dual level, torch.func.jvp, or that in a graph which is being traced?"""
    if forward_ad._current_level >= 0:
        return True
    top = peek_interpreter_stack()
    return top is not None and top.key() == TransformType.Jvp


def _under_forward_ad(definition: Definition, values: list) -> object:
    """Forward mode sees through the op: the reference itself runs, as plain torch code."""
    if definition.reference is None:
        raise SchemaError(
            f"{definition.schema.qualname} has no reference, so forward-mode AD (jvp, jacfwd) cannot see into it"
        )
    args, kwargs = definition.split(values)
    with torch._C._DisableAutocast():
        return definition.reference(*args, **kwargs)


class _Backward(_SingleLevelFunction):
    """The node of `ns::name_backward`: its own gradients come from the vjp of the reference's vjp."""

    apply: ClassVar[Callable]

    @staticmethod
    def forward(ctx, op, keyset, arguments, *tensors):
        ctx.op, ctx.arguments = op, hollow(arguments)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        with _levels_below():
            results = op.backward_op.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
        found = flat([results] if isinstance(results, torch.Tensor) else results)
        ctx.kept = [not is_absent(r) for r in found]
        ctx.mark_non_differentiable(*[r for r, kept in zip(found, ctx.kept, strict=True) if not kept])
        return tuple(found)

    @staticmethod
    def backward(ctx, *grads):
        definition = ctx.op.definition
        tensors = list(ctx.saved_tensors)
        loose = [i for i, t in enumerate(tensors) if differentiable_type(t)]

        def function(*moving):
            placed = list(tensors)
            for i, t in zip(loose, moving, strict=True):
                placed[i] = t
            out = pulled_back(definition, refill(ctx.arguments, placed))
            return tuple(g for g in flat([out] if isinstance(out, torch.Tensor) else out) if not is_absent(g))

        results, pull = torch.func.vjp(function, *[tensors[i] for i in loose])
        given = [g for g, kept in zip(grads, ctx.kept, strict=True) if kept]
        found = pull(tuple(torch.zeros_like(r) if g is None else g for g, r in zip(given, results, strict=True)))
        placed: list = [None] * len(tensors)
        for i, g in zip(loose, found, strict=True):
            placed[i] = g
        return (None, None, None, *placed)


def differentiable_backward(op) -> Callable:
    """The Autograd kernel of `ns::name_backward`."""

    def call(keyset, *arguments):
        tensors = flat(list(arguments))
        if forward_mode():
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
