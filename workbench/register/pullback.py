"""The backward of an op as a function: its schema, the vjp of the reference, the user's own, and the fake of both.

The backward of every op is an opaque op of its own, `ns::name_backward`: a swap behind it reaches compiled callers.
Its arguments are the gradients of the outputs, then what the forward took, gave and saved; it returns one gradient
per tensor argument, an empty tensor (`absent`) where there is none. A gradient has the layout of its argument.
The autograd nodes that call it are in `gradient`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from ..errors import SchemaError
from ..holes import differentiable_type, refill
from ..reference import Definition, flat, storage
from ..schema import Schema
from .vjp import vjp
from .written import written


def backward_schema(schema: Schema) -> str:
    """The schema string of `ns::name_backward`.

    >>> backward_schema(parse("lab::f(Tensor x, float k=2.0) -> Tensor"))
    'lab::f_backward(Tensor? grad_out, Tensor x, float k, Tensor out) -> Tensor'
    """
    forward = [f"{a.type} {a.name}" for a in schema.arguments]
    results = [f"{t} {n}" for n, t in tensor_results(schema) if n not in schema.mutated]
    # A gradient may bear the name of an argument (an op that takes grad_x itself): incoming ones are renamed then.
    taken = {a.name for a in schema.arguments}
    incoming = [
        f"{'Tensor?[]' if t.endswith('[]') else 'Tensor?'} {free_name(f'grad_{n}', taken)}"
        for n, t in tensor_results(schema)
    ]
    saved = [f"Tensor {n}" for n in schema.saves]
    outgoing = ", ".join("Tensor[]" if a.is_tensor_list else "Tensor" for a in schema.tensors)
    outgoing = outgoing if len(schema.tensors) == 1 else f"({outgoing})"
    return f"{schema.qualname}_backward({', '.join(incoming + forward + results + saved)}) -> {outgoing}"


def free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def tensor_results(schema: Schema) -> list[tuple[str, str]]:
    """(name, type) of what takes an incoming gradient, in order: mutated arguments, then tensor outputs."""
    mutated = [(a.name, a.type.rstrip("?")) for a in schema.arguments if a.mutated]
    return mutated + [
        (n, t) for n, t in zip(schema.outputs, schema.output_types, strict=True) if t.startswith("Tensor")
    ]


def absent(device: torch.device | str = "cpu") -> torch.Tensor:
    """What stands for "no tensor" where a schema must return one: nothing was saved, no gradient is there."""
    return torch.empty(0, dtype=torch.uint8, device=device)


def is_absent(t: torch.Tensor) -> bool:
    return t.dtype is torch.uint8 and t.dim() == 1 and t.numel() == 0


_SWITCHED_OFF = (
    "AutogradCPU", "AutogradCUDA", "AutogradOther", "ADInplaceOrView", "FuncTorchDynamicLayerFrontMode",
    "FuncTorchDynamicLayerBackMode", "FuncTorchGradWrapper", "FuncTorchBatched",
)  # fmt: skip


@functools.cache
def _switched_off() -> torch._C.DispatchKeySet:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality)
    for key in _SWITCHED_OFF:
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return keys


@contextmanager
def autograd_on() -> Iterator[None]:
    """Autograd and functorch inside a kernel, where the dispatcher or a mode around it has switched them off."""
    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set() - _switched_off()
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield


def default_backward(op) -> Callable:
    """What `ns::name_backward` runs where no kernel fills it: the user's `@op.backward`, or the reference's vjp."""

    def call(*arguments):
        with autograd_on(), torch.no_grad(), torch._C._DisableAutocast():
            return pulled_back(op.definition, arguments)

    return call


def pulled_back(definition: Definition, arguments: Sequence) -> object:
    """The gradients of the inputs for `ns::name_backward(*arguments)`, one per tensor argument."""
    schema = definition.schema
    incoming, values, outputs, saved = cut(schema, arguments)
    if not flat(incoming):
        gradients = [None] * len(flat(values))  # nothing comes in: nothing goes out
    elif definition.backward is not None:
        names = [n for n, _ in tensor_results(schema)]
        gradients = written(definition, dict(zip(names, incoming, strict=True)), values, outputs, saved)
    elif definition.reference is None:
        raise SchemaError(
            f"{schema.qualname} has no gradient: it has no reference. Write @op.backward, a cell for "
            f"{schema.name}.backward, or give the op a reference with wb.op"
        )
    else:
        refuse_random(definition, values)
        gradients = _from_reference(definition, incoming, values)
    used: set[int] = set()
    found = iter(gradients)
    results = [
        [_laid_out(found, v, arguments, used) for v in value]
        if a.is_tensor_list
        else _laid_out(found, value, arguments, used)
        for value, a in zip(values, schema.arguments, strict=True)
        if a.is_tensor or a.is_tensor_list
    ]
    return results[0] if len(results) == 1 else tuple(results)


def completed(definition: Definition, found: torch.Tensor | Sequence, default: Callable, arguments: Sequence) -> object:
    """The gradients that a kernel made, with those that it leaves out from the reference's vjp."""
    _, values, _, _ = cut(definition.schema, arguments)
    made = [found] if isinstance(found, torch.Tensor) else list(found)
    owners = [v for v, a in zip(values, definition.schema.arguments, strict=True) if a.is_tensor or a.is_tensor_list]
    missing = [i for i, (g, v) in enumerate(zip(made, owners, strict=True)) if g is None and differentiable_type(v)]
    rest = default(*arguments) if missing else []
    rest = [rest] if isinstance(rest, torch.Tensor) else rest
    for i, g in enumerate(made):
        if g is None:
            made[i] = rest[i] if i in missing else absent(flat(list(arguments))[0].device)
    return made[0] if len(made) == 1 else tuple(made)


def cut(schema: Schema, arguments: Sequence) -> tuple[list, list, list, list]:
    """The arguments of a backward op as (incoming gradients, forward arguments, outputs, saved)."""
    grads, given = len(tensor_results(schema)), len(schema.arguments)
    gave = sum(t.startswith("Tensor") for t in schema.output_types)
    a = list(arguments)
    return a[:grads], a[grads : grads + given], a[grads + given : grads + given + gave], a[grads + given + gave :]


def _from_reference(definition: Definition, incoming: Sequence, values: list) -> list:
    """The vjp, one gradient per flat tensor of the arguments, None where there can be none."""
    tensors = flat(values)
    floats = [i for i, t in enumerate(tensors) if differentiable_type(t)]

    def function(*moving):
        placed = list(tensors)
        for i, t in zip(floats, moving, strict=True):
            placed[i] = t
        results = definition.inline(refill(values, placed))
        return tuple(r for r in results if differentiable_type(r))

    results, pull = vjp(function, *[tensors[i] for i in floats])
    flat_incoming = [g for group in incoming for g in (group if isinstance(group, (list, tuple)) else [group])]
    kinds = [differentiable_type(r) for r in _shapes_of(definition, values, len(flat_incoming), results)]
    cotangents = [g for g, moves in zip(flat_incoming, kinds, strict=True) if moves]
    cotangents = [torch.zeros_like(r) if g is None else g.to(r.dtype) for g, r in zip(cotangents, results, strict=True)]
    found = dict(zip(floats, pull(tuple(cotangents)), strict=True)) if results else {}
    return [found.get(i) for i in range(len(tensors))]


def _shapes_of(definition: Definition, values: list, count: int, results: Sequence) -> list:
    """All results of the reference where some are integers, so that gradients meet the right ones."""
    if len(results) == count:
        return list(results)
    with torch.no_grad():
        return list(definition.inline(values))


def _laid_out(found: Iterator, argument, arguments: Sequence, used: set) -> torch.Tensor:
    """The next gradient in the layout of its argument, sharing storage with nothing: what the fake promises."""
    if argument is None:
        return absent(flat(list(arguments))[0].device)
    gradient = next(found)
    if not differentiable_type(argument):
        return absent(argument.device)
    if gradient is None:
        return torch.zeros_like(argument)
    if torch._C._functorch.is_functorch_wrapped_tensor(gradient):
        return gradient  # inside a transform nothing is handed to the dispatcher, so nothing can alias
    if (argument.layout, gradient.layout) != (torch.strided, torch.strided):
        return gradient.clone()  # sparse: torch's own gradients are as they come, too
    if not used:
        used.update(storage(t) for t in flat(list(arguments)))
    if argument.is_contiguous():
        gradient = gradient.to(argument.dtype).contiguous()
    elif (target := torch.empty_like(argument)).stride() != gradient.stride() or gradient.dtype != argument.dtype:
        return target.copy_(gradient)
    if storage(gradient) in used:
        gradient = gradient.clone()
    used.add(storage(gradient))
    return gradient


def fake_backward(definition: Definition) -> Callable:
    """Fakes of the gradients: each like its argument."""

    def call(*arguments):
        _, values, _, _ = cut(definition.schema, arguments)
        device = flat(list(arguments))[0].device

        def like(t: object) -> torch.Tensor:
            return torch.empty_like(t) if differentiable_type(t) else torch.empty(0, dtype=torch.uint8, device=device)

        pairs = zip(values, definition.schema.arguments, strict=True)
        results = [
            [like(t) for t in v] if a.is_tensor_list else like(v) for v, a in pairs if a.is_tensor or a.is_tensor_list
        ]
        return results[0] if len(results) == 1 else tuple(results)

    return call


def gradient_flags(definition: Definition, values: list, count: int) -> tuple[bool, ...]:
    """Which results of the reference take a gradient: one that it detaches does not. Learnt once per reference."""
    known = definition.gradient_flags
    if known is not None and len(known) == count:
        return known
    if definition.reference is None or definition.backward is not None:
        return (True,) * count
    with temporarily_clear_interpreter_stack(), autograd_on():
        moving = [_unwrapped(t).detach() for t in flat(values)]
        moving = [t.requires_grad_() if differentiable_type(t) else t for t in moving]
        results = definition.inline(refill(values, moving))
    definition.gradient_flags = tuple(r.requires_grad for r in results)
    return definition.gradient_flags


def _unwrapped(t: torch.Tensor) -> torch.Tensor:
    """A plain tensor of the same shape: without functorch's levels, and of a batch its first element."""
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        level = torch._C._functorch
        dim = level.maybe_get_bdim(t)
        t = level.get_unwrapped(t)
        if dim >= 0:
            t = t.select(dim, 0) if t.size(dim) else t.sum(dim, dtype=t.dtype)
    return t


def refuse_random(definition: Definition, values: Sequence) -> None:
    """The vjp re-runs the reference; one that draws random numbers would draw others."""
    if definition.backward is not None:
        return
    name = definition.schema.qualname
    if definition.is_random:
        raise SchemaError(
            f"{name} draws random numbers, so it has no gradient by default: its vjp would run the reference again and "
            "draw others. Write @op.backward, or take a seed or the noise as an argument."
        )
    if definition.compare is None:
        return
    if definition.forward_is_kernel(next((t.device.type for t in flat(list(values))), "cpu")):
        raise SchemaError(
            f"{name} has a @compare, so its forward kernel may give other values than the reference, and the "
            "reference's vjp would not be its gradient. Write @op.backward or a backward cell."
        )
