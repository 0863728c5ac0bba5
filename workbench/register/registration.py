"""What torch knows of one op: its names, and what stands behind each.

An op `lab::f` is four names. `lab::f` is the public one. `lab::f_forward` takes the same arguments and also returns
what the forward saves for backward; no autograd kernel stands in front of it. `lab::f_backward` makes the gradients.
`wb_layout::lab__f` makes empty outputs with the reference's strides (`layouts`). Behind each name stands a
trampoline that consults the op's `Definition`, so only a changed schema registers anything again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.library import Library

from ..entry import autograd_text, compiled, entry
from ..errors import SchemaError
from ..reference import Definition, flat
from ..schema import Schema, spell_results
from . import gradient, pullback
from .batching import batched, batched_backward
from .eager import eager
from .inlined import Inlined
from .layouts import Layouts
from .names import destroy_library, forget_name, keep_alive
from .overloads import renewed
from .traces import Traces

SUFFIXES = ("", "_forward", "_backward", "_partial_backward")  # of the names that an op can have


class Registered(Protocol):
    """An op as its registration sees it: it has a definition, and gets the entries (no backward without tensors)."""

    definition: Definition
    public_op: torch._ops.OpOverload
    forward_op: torch._ops.OpOverload
    backward_op: torch._ops.OpOverload | None


class Registration:
    """What torch knows of one op, and how to take it back."""

    foreign = False  # does somebody else define the name?
    direct: tuple[str, Callable] | None = None  # (device, what the op's own call reaches without the dispatcher)

    def __init__(self, op: Registered, definition: Definition) -> None:
        self.definition = definition
        self.schema = definition.schema
        self.public_op: torch._ops.OpOverload
        self.forward_op: torch._ops.OpOverload
        self.backward_op: torch._ops.OpOverload | None = None
        self._library = Library(self.schema.namespace, "FRAGMENT")
        self._layouts = Layouts(definition)
        self._kernels: dict[tuple[str, str], Library] = {}
        self._traces = Traces()
        self._op, self.inlined = op, Inlined(self.schema.namespace)
        self._define(op)

    @property
    def native_gradient(self) -> str:
        """Where a library that defines the op has a gradient of its own."""
        return ""

    # ------------------------------------------------------------ names

    def _define(self, op: Registered) -> None:
        schema = self.schema
        _free(schema)
        tags = (torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else ()
        self.public_op = self._name(schema.name, str(schema), tags)
        self.forward_op = self._name(f"{schema.name}_forward", forward_schema(schema), tags)
        self._implement_forward()
        if schema.tensors:
            self.backward_op = self._name(f"{schema.name}_backward", pullback.backward_schema(schema), tags)
            op.public_op, op.forward_op, op.backward_op = self.public_op, self.forward_op, self.backward_op
            self._implement_gradient(op)
        self._layouts.define()

    def _name(self, name: str, spelled: str, tags: tuple) -> torch._ops.OpOverload:
        namespace = self.schema.namespace
        self._library.define(spelled.partition("::")[2], tags=tags)
        keep_alive(f"{namespace}::{name}")
        return renewed(namespace, name)

    # ------------------------------------------------------------ forward

    def _implement_forward(self) -> None:
        definition, schema, library = self.definition, self.schema, self._library

        def public(*args, **kwargs):
            return definition.run(args, kwargs)

        def forward(*args, **kwargs):
            return with_saved(schema, definition.run(args, kwargs), _nothing_saved(schema, args, kwargs))

        def fake(*args, **kwargs):
            self._traces.note()
            return definition.run_fake(args, kwargs)

        def fake_forward(*args, **kwargs):
            self._traces.note()
            outputs = definition.run_fake(args, kwargs)
            make = definition.saved_fake
            saved = make(args, kwargs) if make is not None else _nothing_saved(schema, args, kwargs)
            return with_saved(schema, outputs, saved)

        names = {schema.name: (public, fake), f"{schema.name}_forward": (forward, fake_forward)}
        for name, (kernel, faked) in names.items():
            library.impl(name, eager(kernel), "CompositeExplicitAutograd")
            torch.library.register_fake(f"{schema.namespace}::{name}", faked, lib=library)
            if schema.mutated:
                library.impl(name, bumps_versions(schema, self._overload(name)), "ADInplaceOrView", with_keyset=True)
        library.impl(f"{schema.name}_forward", torch.library.fallthrough_kernel, "Autograd")
        library.impl(
            schema.name, batched(definition, self.public_op, self._traces.note), "FuncTorchBatched", with_keyset=True
        )

    def _overload(self, name: str) -> torch._ops.OpOverload:
        return getattr(getattr(torch.ops, self.schema.namespace), name).default

    def _implement_gradient(self, op: Registered) -> None:
        backward = f"{self.schema.namespace}::{self.schema.name}_backward"
        self.implement_gradient(op, self._library, self._library, backward)

    def implement_gradient(self, op: Registered, library: Library, owner: Library, backward: str) -> None:
        """The Autograd kernel of the op, in `library`; all that stands behind its backward `ns::name`, in `owner`."""
        schema = self.schema
        names = {
            "differentiable": gradient.differentiable(op),
            "redispatch": self.public_op.redispatch,
            "forward_mode": gradient.forward_mode,
        }
        function = compiled(autograd_text(schema), schema, names, " autograd")
        library.impl(schema.name, eager(function), "Autograd", with_keyset=True)
        name = backward.partition("::")[2]
        owner.impl(name, eager(pullback.default_backward(op)), "CompositeExplicitAutograd")
        torch.library.register_fake(backward, pullback.fake_backward(self.definition), lib=owner)
        owner.impl(name, eager(gradient.differentiable_backward(op)), "Autograd", with_keyset=True)
        owner.impl(name, batched_backward(self.backward_op), "FuncTorchBatched", with_keyset=True)

    # ------------------------------------------------------------ kernels

    def set_kernel(self, name: str, device: str, function: Callable) -> None:
        """A Python function as the kernel of `name` ("f", "f_forward", ...) on a device; replaces the former one."""
        self.clear_kernel(name, device)
        library = Library(self.schema.namespace, "IMPL")
        library.impl(name, eager(function), device.upper())
        self._kernels[name, device] = library

    def clear_kernel(self, name: str, device: str) -> None:
        former = self._kernels.pop((name, device), None)
        if former is not None:
            former._destroy()

    def go_direct(self, device: str, function: Callable | None) -> None:
        """The op's own call reaches this function without torch's dispatcher, for plain tensors of that device."""
        self.direct = (device, eager(function)) if function is not None else None
        own: Any = type(self._op)
        own.__call__ = entry(self)

    def name_partial(self, name: str, device: str) -> None:
        """A name for a backward launcher that leaves gradients out; the op's own backward adds the reference's."""
        schema, namespace = self.schema, self.schema.namespace
        if not _taken(f"{namespace}::{name}_backward"):
            spelled = native_backward(schema, name)
            self._name(f"{name}_backward", spelled, ())
            self._layouts.define_backward(name, spelled)
        partial = getattr(getattr(torch.ops, namespace), f"{name}_backward").default
        default = pullback.default_backward(self._op)

        def completed(*arguments):
            return pullback.completed(self.definition, partial(*arguments), default, arguments)

        self.set_kernel(f"{schema.name}_backward", device, completed)

    def fitting(self, definition: Definition) -> Definition:
        """What a new definition of the name comes to."""
        return definition

    def forget_traces(self) -> None:
        """Anything that compiled code took from this op has changed: its frames are traced afresh, on disk too."""
        self._layouts.forget()
        self._traces.forget(self.definition)

    def destroy(self) -> None:
        """Take the names back, for a definition with another schema."""
        self.forget_traces()
        for key in list(self._kernels):
            self.clear_kernel(*key)
        for suffix in SUFFIXES:
            forget_name(self.schema.namespace, self.schema.name + suffix)
        self.inlined.clear()
        self._layouts.destroy(SUFFIXES)
        destroy_library(self._library)


def forward_schema(schema: Schema) -> str:
    """The schema string of `ns::name_forward`: what callers see, then what is saved for backward."""
    types = (*schema.output_types, *["Tensor"] * len(schema.saves))
    return f"{schema.qualname}_forward({schema.parameters}) -> {spell_results(types, ('',) * len(types))}"


def native_backward(schema: Schema, name: str) -> str:
    """The schema string of a backward launcher that registers under `name`."""
    return f"{schema.namespace}::{name}_backward(" + pullback.backward_schema(schema).partition("(")[2]


def with_saved(schema: Schema, outputs: Any, saved: list) -> object:
    given = [] if not schema.outputs else [outputs] if len(schema.outputs) == 1 else list(outputs)
    everything = given + saved
    return None if not everything else everything[0] if len(everything) == 1 else tuple(everything)


def _nothing_saved(schema: Schema, args: tuple, kwargs: dict) -> list:
    device = next((t.device for t in flat([*args, *kwargs.values()])), "cpu")
    return [pullback.absent(device) for _ in schema.saves]


def bumps_versions(schema: Schema, overload: torch._ops.OpOverload) -> Callable:
    """A kernel that mutates must say so, or autograd cannot see that a saved tensor changed."""
    after = torch._C._after_ADInplaceOrView_keyset
    places = [(i, a.name) for i, a in enumerate(schema.arguments) if a.mutated]

    def call(keyset, *args, **kwargs):
        result = overload.redispatch(keyset & after, *args, **kwargs)
        mutated = [args[i] if i < len(args) else kwargs.get(n) for i, n in places]
        torch.autograd.graph.increment_version(flat(mutated))
        return result

    return call


def _free(schema: Schema) -> None:
    """Refuse a name whose three names are taken by somebody else's op."""
    for suffix in ("", "_forward", "_backward"):
        qualname = schema.qualname + suffix
        if _taken(qualname):
            what = (
                "another op" if not suffix else f"another op, and {schema.qualname} needs it for its own {suffix[1:]}"
            )
            raise SchemaError(f"the name {qualname} is already taken by {what}; choose another name")


def _taken(qualname: str) -> bool:
    try:
        torch._C._dispatch_find_schema_or_throw(qualname, "")
    except RuntimeError:
        return False
    return True
