"""`wb_layout::lab__f`: empty outputs with the strides that the reference would give them.

Kernels that make their outputs ask for it where an argument is not contiguous. Every name of an op that a kernel stands
behind has one: `lab__f`, `lab__f_backward`, `lab__f_partial_backward`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.library import Library

from ..reference import Definition, flat
from ..schema import spell_results
from . import pullback
from .names import destroy_library, forget_name

NAMESPACE = "wb_layout"
MOST = 256  # forms of arguments for which that of the outputs is kept


class Layouts:
    """The layout ops of one op. `forget` when the definition is another, `destroy` when the op's names go."""

    def __init__(self, definition: Definition) -> None:
        self._definition, self._schema = definition, definition.schema
        self._library = Library(NAMESPACE, "FRAGMENT")
        self._known: dict[tuple, list[tuple]] = {}

    def define(self) -> None:
        """Those of the op and, where it has tensors, of its backward."""
        schema = self._schema
        results = spell_results(schema.output_types, ("",) * len(schema.output_types))
        self._library.define(f"{self._name('')}({schema.parameters}) -> {results}")
        self._library.impl(self._name(""), self._outputs, "CompositeExplicitAutograd")
        if schema.tensors:
            self.define_backward(schema.name, pullback.backward_schema(schema))

    def define_backward(self, name: str, spelled: str) -> None:
        """That of a backward under `name`, which has this schema: a gradient is laid out as its argument."""
        full = f"{self._schema.namespace}__{name}_backward"
        self._library.define(f"{full}({spelled.partition('(')[2]}")
        self._library.impl(full, pullback.fake_backward(self._definition), "CompositeExplicitAutograd")

    def forget(self) -> None:
        self._known.clear()

    def destroy(self, suffixes: tuple[str, ...]) -> None:
        for suffix in suffixes:
            forget_name(NAMESPACE, self._name(suffix))
        destroy_library(self._library)

    def _name(self, suffix: str) -> str:
        return f"{self._schema.namespace}__{self._schema.name}{suffix}"

    def _outputs(self, *args: Any, **kwargs: Any) -> object:
        values = self._definition.order(args, kwargs)
        key = tuple(map(_form, values))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[key] = output_metadata(self._definition, values)
        device = flat(values)[0].device
        made = [torch.empty_strided(size, stride, dtype=dtype, device=device) for size, stride, dtype in found]
        return None if not made else made[0] if len(made) == 1 else tuple(made)


def output_metadata(definition: Definition, values: list) -> list[tuple]:
    """(size, stride, dtype) of each output, by a run of the reference on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        args, kwargs = definition.split([_fake(mode, v) for v in values])
        out = definition.run_fake(args, kwargs)
    return [(tuple(t.shape), t.stride(), t.dtype) for t in flat(out if isinstance(out, (tuple, list)) else [out])]


def _fake(mode: Any, value: object) -> object:
    if isinstance(value, torch.Tensor):
        return mode.from_tensor(value)
    return [_fake(mode, v) for v in value] if isinstance(value, (tuple, list)) else value


def _form(value: object) -> object:
    """Equal for values that give outputs of the same form."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype, value.device)
    return tuple(map(_form, value)) if isinstance(value, (tuple, list)) else value
