"""The names that a user's own library defines, with what it leaves out registered beside them.

The library defines `lab::f` and gives its kernels. Where it has none for a fake, a batching rule, version counters or a
gradient, the op's `Definition` serves, as it does for the names that `register` defines.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.library import Library

from ..annotations import CLASSES
from ..errors import SchemaError
from ..reference import Definition
from ..schema import Schema
from ..trial.probe import keys_of
from . import pullback
from .batching import batched
from .names import destroy_library, forget_name, keep_alive
from .overloads import renewed
from .registration import Registered, Registration, bumps_versions
from .traces import forget_all

NAMESPACE = "wb_adopted"  # of the backwards; a block may have an `f_backward` of its own
COMPOSITE = frozenset({"CompositeImplicitAutograd"})
FAKES = frozenset({"Meta", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"}) | COMPOSITE
AUTOCAST = frozenset({"AutocastCPU", "AutocastCUDA"})
GRADIENTS = frozenset({"Autograd", "AutogradCPU", "AutogradCUDA"}) | COMPOSITE


def same(one: Schema, other: Schema) -> bool:
    """Can a function of one schema serve the other? Defaults and names of outputs do not matter, nor int for SymInt."""

    def shape(s: Schema) -> tuple:
        arguments = [(a.name, a.type.replace("SymInt", "int"), a.mutated, a.keyword_only) for a in s.arguments]
        return arguments, [t.replace("SymInt", "int") for t in s.output_types]

    return shape(one) == shape(other)


class Adopted(Registration):
    """An op whose library stands already. `complete` again whenever that was built anew."""

    foreign = True
    build = ""  # the key of the build that defines it, for the caches of compiled code

    def _define(self, op: Registered) -> None:
        self._added: list[Library] = []
        self.complete()

    @property
    def native_gradient(self) -> str:
        """Where the library's own gradient is: "Autograd", "CompositeImplicitAutograd", or "" for none."""
        return next((k for k in sorted(GRADIENTS) if k in self.keys), "")

    def complete(self) -> None:
        """Register what the library does not, and see its overload as it is now."""
        self.withdraw()
        schema, op = self.schema, self._op
        self.public_op = self.forward_op = renewed(schema.namespace, schema.name)
        for name in (packet := self.public_op.overloadpacket).overloads():
            getattr(packet, name)._dispatch_cache.clear()  # it remembers who served which key
        self.keys, self._served = frozenset(keys_of(schema.qualname)), self._serves()
        keep_alive(schema.qualname)
        self.backward_op = None
        if not self.keys & COMPOSITE:
            self._complete()
        op.public_op, op.forward_op, op.backward_op = self.public_op, self.forward_op, self.backward_op

    def _complete(self) -> None:
        schema, definition = self.schema, self.definition
        library = Library(schema.namespace, "IMPL")
        self._added.append(library)

        def fake(*args, **kwargs):
            self._traces.note()
            return definition.run_fake(args, kwargs)

        if not self.keys & FAKES:
            torch.library.register_fake(schema.qualname, fake, lib=library)
        if schema.mutated and "ADInplaceOrView" not in self.keys:
            library.impl(schema.name, bumps_versions(schema, self.public_op), "ADInplaceOrView", with_keyset=True)
        if "FuncTorchBatched" not in self.keys:
            library.impl(
                schema.name,
                batched(definition, self.public_op, self._traces.note),
                "FuncTorchBatched",
                with_keyset=True,
            )
        if any(a.type.startswith(CLASSES) for a in schema.arguments):
            for key in AUTOCAST - self.keys:  # in Python, where fake objects go, a key without a kernel is an error
                library.impl(schema.name, torch.library.fallthrough_kernel, key)
        if schema.tensors and not self.keys & GRADIENTS and self._served:
            self._add_gradient(library)

    def _add_gradient(self, library: Library) -> None:
        schema, op, own = self.schema, self._op, Library(NAMESPACE, "FRAGMENT")
        self._added.append(own)
        name = f"{schema.namespace}__{schema.name}_backward"
        own.define(name + "(" + pullback.backward_schema(schema).partition("(")[2])
        keep_alive(f"{NAMESPACE}::{name}")
        self.backward_op = op.backward_op = renewed(NAMESPACE, name)
        op.public_op = op.forward_op = self.public_op
        self.implement_gradient(op, library, own, f"{NAMESPACE}::{name}")

    def _serves(self) -> bool:
        """Can the definition give a gradient?"""
        return self.definition.reference is not None or self.definition.backward is not None

    def fitting(self, definition: Definition) -> Definition:
        """A reference for the name, under the schema that the library gave it; SchemaError where it has another one."""
        if not same(definition.schema, self.schema):
            raise SchemaError(
                f"{self.schema.qualname} is defined by a block with the schema {self.schema}; the reference's is "
                f"{definition.schema}: write one for both"
            )
        return replace(definition, schema=self.schema)

    def withdraw(self) -> None:
        """Take back what was registered beside the library's own."""
        for library in self._added:
            destroy_library(library)
        self._added.clear()
        if self.backward_op is not None:
            forget_name(NAMESPACE, f"{self.schema.namespace}__{self.schema.name}_backward")
            self.backward_op = None

    def forget_traces(self) -> None:
        """Compiled code follows. Only our own fake knows who traced it; torch's tracers see through other kernels."""
        if self._serves() != self._served:  # it has a reference now, or a backward
            self.complete()
        self._traces.forget(self.definition, self.build)
        if self.keys & (FAKES | GRADIENTS):
            forget_all()

    def destroy(self) -> None:
        """Leave the name: the library takes it back, or gives it another schema."""
        self.withdraw()
        forget_name(self.schema.namespace, self.schema.name)
        for key in list(self._kernels):
            self.clear_kernel(*key)
        self.inlined.clear()
        self._layouts.destroy(())
        destroy_library(self._library)
