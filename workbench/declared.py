"""What an op is, and the decorators that say more of it: cases, kernels of Python, fake, backward, batching rule.

What one does with an op is in `op`. How its slots and versions change is in `live`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from . import schema
from .case import make
from .errors import SchemaError
from .live import CASES_GONE, Live
from .turn import in_turn
from .version import Version


class Declared(Live):
    """The half of an op that is read and declared."""

    @property
    def qualname(self) -> str:
        """`"lab::rmsnorm"`: namespace and name."""
        return self.schema.qualname

    @property
    def torch_op(self) -> torch._ops.OpOverload:
        """The entry in `torch.ops`: `torch.ops.lab.rmsnorm.default`."""
        return self.public_op

    @property
    def reference(self) -> Callable | None:
        """The function under `@wb.op`; None for an op that was made by a schema or by a cell."""
        return self.definition.reference

    @property
    def slots(self) -> Mapping[tuple[str, str], Version]:
        """What fills each slot that is not the reference, by slot and device.

        >>> rmsnorm.slots
        mappingproxy({('forward', 'cpu'): <v2 forward cpu raw C++ agreed>})
        """
        return MappingProxyType(self._slots)

    @property
    def versions(self) -> tuple[Version, ...]:
        """Every build by its number, refused ones too; number 0 is the reference.

        >>> rmsnorm.versions[0], rmsnorm.versions[-1]
        (<v0 forward reference>, <v2 forward cpu raw C++ agreed>)
        """
        return tuple(self._versions)

    @property
    def tuned(self) -> Mapping[tuple, Mapping]:
        """The configurations that were found best and run now: (slot, device, dtypes, shapes) -> names and values.

        >>> matmul.tuned["forward", "cpu", ("float32", "float32"), ((1024, 1024), (1024, 1024))]
        {'MR': 6, 'NV': 2, 'KC': 256, 'MC': 96}
        """
        frozen = {key: getattr(v.kernel, "frozen", {}) for key, v in self._slots.items()}
        return MappingProxyType({(*key, *form): dict(c) for key, found in frozen.items() for form, c in found.items()})

    @property
    def random(self) -> bool:
        """Was the reference seen to draw from torch's generator?"""
        return self.definition.is_random

    @property
    def compare_function(self) -> Callable | None:
        return self.definition.compare

    @property
    def differentiable(self) -> bool:
        """Is there a gradient: the reference's vjp, `@op.backward`, or a backward cell?"""
        d = self.definition
        if not d.schema.tensors or not (d.schema.outputs or d.schema.mutated):
            return False
        if d.backward is not None or any(slot == "backward" for slot, _ in self._slots):
            return True
        hidden = d.compare is not None and bool(self._slots)
        return d.reference is not None and not d.is_random and not hidden

    def runs(self, slot: str = "forward", device: str = "cpu") -> Version:
        """The version in a slot: a kernel's, or number 0."""
        return self._slots.get((slot, device), self._versions[0])

    def still(self, slot: str, device: str) -> str:
        """What runs in a slot, as a refusal says it: `v6`, or `the reference`."""
        number = self.runs(slot, device).number
        if number:
            return f"v{number}"
        return "the reference" if self.reference is not None else "nothing"

    @property
    def has_cases(self) -> bool:
        return self._cases is not None

    # ------------------------------------------------------------ decorators

    @in_turn
    def cases(
        self, function: Callable | None = None, *, dtypes: torch.dtype | Sequence[torch.dtype] = (torch.float32,)
    ) -> Callable:
        """The cases of this op, from a generator that takes the tensor maker `t`.

        >>> @rmsnorm.cases(dtypes=(torch.float32, torch.bfloat16))
        ... def _(t):
        ...     yield t(4, 128), t(128)
        ...     yield wb.case("odd", t(5, 123), t(123))

        `t(4, 128)` is a tensor of normal values, `t(4, dtype=torch.int64, low=0, high=9)` one of integers; what has no
        dtype is made in each of `dtypes`. Installed kernels are judged again. SchemaError, with the generator's line,
        where it raises or yields what the op does not take.
        """
        if function is None:
            return lambda f: self.cases(f, dtypes=dtypes)
        self._takes("cases", function)
        self._cases, self._cases_from = make(function, self.schema, dtypes), (function, dtypes)
        self.notes = tuple(n for n in self.notes if not n.startswith(CASES_GONE))
        self._judge_again()
        return function

    def kernel(self, device: str) -> Callable:
        """A Python function as the forward of one device, "cpu" or "cuda".

        >>> @scale.kernel("cpu")
        ... def _(x, k=2.0):
        ...     return torch.mul(x, k)

        It returns the outputs, then what the op saves, or the outputs alone. It is tried on the cases, in this process.
        SchemaError for another device, TrialError where it differs from the reference.
        """
        from . import python_kernel

        place = python_kernel.device_of(self, device)

        def decorate(function: Callable) -> Callable:
            self._takes_a_call("kernel", function)
            return python_kernel.install(self, function, place)

        return decorate

    @in_turn
    def backward(self, function: Callable) -> Callable:
        """A backward in Python. It takes what it names: arguments, outputs, saved tensors, `grad_` of each output.

        >>> @scale.backward
        ... def _(grad_out, k):
        ...     return grad_out * k

        It returns one gradient (or None) per floating-point tensor argument, in their order. It is not tried before it
        is used: `check()` compares it. SchemaError for a name that there is none of.
        """
        self._takes("backward", function)
        known = [a.name for a in self.schema.arguments] + list(self.schema.outputs) + list(self.schema.saves)
        known += [f"grad_{n}" for n in (*self.schema.outputs, *self.schema.mutated)]
        schema.named("backward", list(inspect.signature(function).parameters), tuple(known), self.qualname)
        self.definition.backward = function
        self.changed()
        return function

    @in_turn
    def fake(self, function: Callable) -> Callable:
        """What the outputs look like, without data, where a run of the reference on fake tensors cannot tell.

        >>> @topk.fake
        ... def _(x, k):
        ...     shape = (*x.shape[:-1], k)
        ...     return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)
        """
        self._takes_a_call("fake", function)
        self.definition.fake = function
        self.changed()
        return function

    @in_turn
    def vmap(self, function: Callable) -> Callable:
        """A batching rule, as `torch.library.register_vmap` takes it: results, and where their batch dimensions are.

        >>> @scale.vmap
        ... def _(info, in_dims, x, k):
        ...     return scale(x, k), in_dims[0]
        """
        self._takes("vmap", function)
        self.definition.vmap = function
        self.changed()
        return function

    @in_turn
    def compare(self, function: Callable) -> Callable:
        """What is compared where several answers are right: arguments and outputs in, tensors out.

        >>> @topk.compare
        ... def _(x, k, values, indices):
        ...     return values, x.gather(-1, indices)

        Installed kernels are judged again, and gradients are then those of a backward cell or of `@op.backward`.
        """
        given = [a.name for a in self.schema.arguments] + list(self.schema.outputs)
        self._takes("compare", function, given)
        self.definition.compare = function
        self._judge_again()
        return function

    def _takes_a_call(self, what: str, function: object) -> None:
        """SchemaError for what is no function of the op's arguments."""
        positional, keywords = [a.name for a in self.schema.positional], [a.name for a in self.schema.keyword_only]
        self._takes(what, function, positional, keywords)

    def _takes(self, what: str, function: object, given: Sequence[str] = (), keywords: Sequence[str] = ()) -> None:
        """SchemaError for what stands under a decorator and is no function, or none that takes what it is given."""
        if not callable(function):
            raise SchemaError(f"{self.qualname}: @{self.name}.{what} stands above a function, got {function!r}")
        if not given and not keywords:
            return
        try:
            inspect.signature(function).bind(*given, **dict.fromkeys(keywords))
        except ValueError:  # built in: its signature cannot be read
            return
        except TypeError as error:
            wanted = f"def _({', '.join([*given, *(['*'] if keywords else []), *keywords])})"
            raise SchemaError(f"{self.qualname}: what {what} names does not fit, {error}; write {wanted}") from None
