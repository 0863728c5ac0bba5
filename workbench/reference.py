"""Running a reference the way an op may be run: autocast off, results that alias nothing, its random draws noticed.

`Definition` is what the names registered with torch consult at every call; an `Op` owns one and swaps its parts, so
that a re-run cell reaches every caller without a new registration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.overrides import TorchFunctionMode

from .errors import SchemaError
from .schema import Schema


def unheard(args: tuple, kwargs: dict) -> Callable[[], object]:
    """An `on_call` that remembers nothing, and so has nothing to forget."""
    return lambda: None


@dataclass
class Definition:
    """The replaceable parts of one op.

    `fake`, `backward` and `vmap` are the user's own (`@op.fake`, ...), None where the reference serves. `saved_fake`
    makes the fakes of the saved tensors while a forward kernel that makes them is installed.
    """

    schema: Schema
    reference: Callable | None = None
    fake: Callable | None = None
    backward: Callable | None = None
    vmap: Callable | None = None
    compare: Callable | None = None
    derived_fake: Callable | None = None  # from the directives of an op without a reference
    saved_fake: Callable | None = None
    traced: object = None  # of the installed forward's declaration, what those two fakes follow from
    forward_is_kernel: Callable[[str], bool] = lambda device: False
    backward_is_kernel: Callable[[str], bool] = lambda device: False
    born_of_a_cell: bool = False  # the schema was read from a kernel's signature
    is_random: bool = False  # its reference was seen to draw from torch's generator
    gradient_flags: tuple[bool, ...] | None = None  # which outputs of the reference take a gradient
    # Told what the reference is called with, before it may write to it; gives what forgets a call that raised.
    on_call: Callable[[tuple, dict], Callable[[], object]] = unheard

    def order(self, args: tuple, kwargs: dict) -> list:
        """All arguments in schema order, defaults filled in."""
        return list(self.schema.bind(args, kwargs).values())

    def split(self, values: Sequence) -> tuple[list, dict]:
        """Values in schema order as what a call takes."""
        if not self.schema.keyword_only:
            return list(values), {}
        count = len(self.schema.positional)
        return list(values[:count]), {a.name: v for a, v in zip(self.schema.keyword_only, values[count:], strict=True)}

    def complete(self, args: Sequence, kwargs: dict) -> tuple[Sequence, dict]:
        """A call with all its arguments: torch leaves out the last ones where they are as by default."""
        if len(args) + len(kwargs) == len(self.schema.arguments):
            return args, kwargs
        return self.split(self.order(tuple(args), kwargs))

    def run(self, args: Sequence, kwargs: dict) -> object:
        """The reference on these arguments, as the op's own kernel: its outputs share storage with nothing."""
        reference = self._reference()
        forget = self.on_call(tuple(args), kwargs)
        state = None if self.is_random else torch.get_rng_state()
        try:
            with torch._C._DisableAutocast():
                out = reference(*args, **kwargs)
        except BaseException:
            forget()
            raise
        if state is not None and not torch.equal(state, torch.get_rng_state()):
            self.is_random = True
        return self._as_outputs(out, (*args, *kwargs.values()))

    def run_fake(self, args: Sequence, kwargs: dict) -> object:
        """Outputs without data: from `@op.fake`, the reference on fake tensors, or the directives."""
        function = self.fake or self.reference or self.derived_fake
        if function is None:
            raise _no_fake()(
                f"{self.schema.qualname} has no fake: nothing says what it gives without running it; give one with "
                "@op.fake, or a reference with wb.op. With cases, op.check() offers one"
            )
        if self.fake:
            args, kwargs = self.complete(args, kwargs)
        try:
            with torch._C._DisableAutocast(), _WithoutGenerators():
                out = function(*args, **kwargs)
        except Exception as error:
            if type(error).__name__ in _VALUES:  # torch acts on the type: by a graph break, where one is allowed
                error.args = (f"{error}\n{_depends_on_values(self.schema)}",)
            if not isinstance(error, AssertionError) or "convert all Tensors to FakeTensors" not in str(error):
                raise
            raise SchemaError(
                f"{self.schema.qualname} uses a tensor that is not among its arguments, so its outputs cannot be told "
                "without data; take that tensor as an argument, or say what comes out with @op.fake"
            ) from None
        return self._as_outputs(out, (*args, *kwargs.values()))

    def inline(self, values: Sequence) -> tuple:
        """The reference as plain torch code, differentiable, on clones of what it would mutate.

        Returns all results as a flat tuple: the mutated arguments, then the outputs.
        """
        schema = self.schema
        values = list(values)
        for i, a in enumerate(schema.arguments):
            if a.mutated:
                values[i] = [t.clone() for t in values[i]] if a.is_tensor_list else values[i].clone()
        args, kwargs = self.split(values)
        with torch._C._DisableAutocast():
            out = self._reference()(*args, **kwargs)
        mutated = flat([v for v, a in zip(values, schema.arguments, strict=True) if a.mutated])
        return (*mutated, *flat(out if isinstance(out, (tuple, list)) else [out]))

    def _reference(self) -> Callable:
        if self.reference is None:
            raise SchemaError(
                f"{self.schema.qualname} has no reference and no kernel for these arguments; install one with a cell, "
                "or give it a reference: a function under @wb.op"
            )
        return self.reference

    def _as_outputs(self, out: object, inputs: Sequence) -> object:
        schema = self.schema
        if not schema.outputs:
            if out is not None:
                hint = "; a mutating op returns None" if schema.mutated else ""
                raise SchemaError(
                    f"{schema.qualname} is annotated '-> None' but its reference returned {describe(out)}{hint}"
                )
            return None
        results = list(out) if isinstance(out, (tuple, list)) and len(schema.outputs) > 1 else [out]
        if len(results) != len(schema.outputs):
            raise SchemaError(
                f"{schema.qualname} is annotated with {len(schema.outputs)} outputs, its reference returned "
                f"{describe(out)}"
            )
        seen = {storage(t) for t in flat(inputs)}
        for i, (value, spelled) in enumerate(zip(results, schema.output_types, strict=True)):
            if spelled == "Tensor" and not isinstance(value, torch.Tensor):
                raise SchemaError(
                    f"{schema.qualname}: output {schema.outputs[i]!r} should be a Tensor, the reference returned "
                    f"{describe(value)}"
                )
            if isinstance(value, torch.Tensor):
                results[i] = value = _apart(value, seen)
            elif isinstance(value, (list, tuple)):
                results[i] = value = [_apart(t, seen) if isinstance(t, torch.Tensor) else t for t in value]
        return results[0] if len(schema.outputs) == 1 else tuple(results)


@functools.cache
def _no_fake() -> type[SchemaError]:
    """A SchemaError that Dynamo answers with a graph break, where one is allowed, as it does for torch's own ops."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    return type("SchemaError", (SchemaError, UnsupportedOperatorException), {"func": "an op without a fake"})


# By name: the modules that define them are loaded when something is compiled.
_VALUES = {"DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"}


def _depends_on_values(schema: Schema) -> str:
    names = ", ".join(a.name for a in schema.arguments)
    first = next((a.name for a in schema.arguments if a.type == "Tensor"), "x")
    return (
        f"What {schema.qualname} gives depends on the values of its arguments, which compiling does not know. Say what "
        f"it looks like, with a size that is left open:\n    @{schema.name}.fake\n    def _({names}):\n"
        f"        n = torch.library.get_ctx().new_dynamic_size()\n        return {first}.new_empty(n)"
    )


class _WithoutGenerators(TorchFunctionMode):
    """Fakes draw nothing, and torch has no symbolic form of a draw from a generator that the reference made."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return func(*args, **{k: v for k, v in kwargs.items() if k != "generator"})


def flat(values: object) -> list[torch.Tensor]:
    """The tensors in a list of arguments or results, lists of tensors opened, everything else left out."""
    found: list[torch.Tensor] = []
    for v in values if isinstance(values, (tuple, list)) else [values]:
        if isinstance(v, torch.Tensor):
            found.append(v)
        elif isinstance(v, (tuple, list)):
            found.extend(t for t in v if isinstance(t, torch.Tensor))
    return found


def storage(t: torch.Tensor) -> int:
    """The identity of a tensor's storage, for real and fake tensors; of the tensor itself where it has none."""
    try:
        return t.untyped_storage()._cdata
    except NotImplementedError:  # sparse
        return id(t)


def _apart(t: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """A library op gets no alias check at run time, so an output that shares storage is cloned here."""
    key = storage(t)
    if t.layout is torch.strided and any(
        isinstance(s, int) and s == 0 for s in t.stride()
    ):  # expanded: nothing can be written to it
        t = t.clone(memory_format=torch.contiguous_format)
        key = storage(t)
    if key in seen:
        t = t.clone()
        key = storage(t)
    seen.add(key)
    return t


def describe(value: object) -> str:
    """A value as an error message shows it: `Tensor of shape (3,), float32`, `a tuple of 2`, `None`."""
    if isinstance(value, torch.Tensor):
        return f"a Tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"{type(value).__name__} {value!r:.60}"
