"""`Op`: a live operator, the only object that changes.

An `Op` holds what belongs together: the reference, the cases, the versions of each slot, the names registered with
torch. How a cell becomes a version is in `install`; how an op is checked is in `check`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import torch

from . import register, schema
from .case import Case, learn, make
from .report import Card, Check
from .reference import Definition, flat
from .schema import Schema
from .version import Version

LEARNT_AT_MOST = 8  # calls that an op without cases remembers the shapes of


class Op:
    """An operator of your own: call it, check it, replace a slot of it with a cell.

    >>> @wb.op("lab::scale")
    ... def scale(x: Tensor, k: float = 2.0) -> Tensor:
    ...     return x * k
    >>> scale(torch.ones(2))
    tensor([2., 2.])
    >>> torch.ops.lab.scale(torch.ones(2), 3.0)
    tensor([3., 3.])

    `schema`, `torch_op` (the `torch.ops` entry), `reference`, `slots` (what runs where) and `versions` (every build,
    refused ones too; number 0 is the reference) are there to be read.
    """

    public_op: torch._ops.OpOverload
    forward_op: torch._ops.OpOverload
    backward_op: torch._ops.OpOverload | None = None

    def __new__(cls, *_: object) -> Op:
        # A class of its own for each op: its `__call__` is then the generated entry itself, with nothing in between.
        return object.__new__(type("Op", (Op,), {"__module__": __name__}))

    def __init__(self, definition: Definition, registers: type[register.Registration] = register.Registration) -> None:
        self.definition = definition
        self._registers = registers
        self.doc = ""
        self._versions: list[Version] = []
        self._slots: dict[tuple[str, str], Version] = {}
        self._cases: tuple[Case, ...] | None = None
        self._learnt: dict[tuple, Case] = {}
        self.evidence: dict = {}  # what each case should give, while reference and cases stay
        self.rough_inputs: tuple | None = None
        self.last_check = None
        self.last_line = None
        self.notes: tuple[str, ...] = ()
        self._register()

    # ------------------------------------------------------------ what it is

    @property
    def schema(self) -> Schema:
        return self.definition.schema

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def qualname(self) -> str:
        return self.schema.qualname

    @property
    def torch_op(self) -> torch._ops.OpOverload:
        return self.public_op

    @property
    def reference(self) -> Callable | None:
        return self.definition.reference

    @property
    def slots(self) -> Mapping[tuple[str, str], Version]:
        """What fills each slot that is not the reference: `{("forward", "cpu"): v3}`."""
        return MappingProxyType(self._slots)

    @property
    def versions(self) -> tuple[Version, ...]:
        return tuple(self._versions)

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

    # ------------------------------------------------------------ decorators

    def cases(self, function: Callable | None = None, *, dtypes: object = (torch.float32,)) -> Callable:
        """The cases of this op, from a generator that takes the tensor maker `t`.

        >>> @rmsnorm.cases(dtypes=(torch.float32, torch.bfloat16))
        ... def _(t):
        ...     yield t(4, 128), t(128)
        ...     yield wb.case("odd", t(5, 123), t(123))

        What `t` makes without a dtype is made in each of `dtypes`. Installed kernels are judged again.
        """
        if function is None:
            return lambda f: self.cases(f, dtypes=dtypes)
        self._cases = make(function, self.schema, dtypes)
        self._judge_again()
        return function

    def kernel(self, device: str) -> Callable:
        """A Python function as the forward of one device; it returns the outputs, then what the op saves.

        >>> @rmsnorm.kernel("cpu")
        ... def _(x, w, eps=1e-6):
        ...     return torch.nn.functional.rms_norm(x, w.shape, w, eps)
        """
        from . import python_kernel

        return lambda function: python_kernel.install(self, function, device)

    def backward(self, function: Callable) -> Callable:
        """A backward in Python. It takes what it names: arguments, outputs, saved tensors, `grad_` of each output.

        >>> @scale.backward
        ... def _(grad_out, k):
        ...     return grad_out * k

        It returns one gradient (or None) per floating-point tensor argument, in their order.
        """
        known = [a.name for a in self.schema.arguments] + list(self.schema.outputs) + list(self.schema.saves)
        known += [f"grad_{n}" for n in (*self.schema.outputs, *self.schema.mutated)]
        schema.named("backward", list(inspect.signature(function).parameters), tuple(known), self.qualname)
        self.definition.backward = function
        self.changed()
        return function

    def fake(self, function: Callable) -> Callable:
        """What the outputs look like, without data, where a run of the reference on fake tensors cannot tell."""
        self.definition.fake = function
        self.changed()
        return function

    def vmap(self, function: Callable) -> Callable:
        """A batching rule, as `torch.library.register_vmap` takes it: `(info, in_dims, *args)`."""
        self.definition.vmap = function
        self.changed()
        return function

    def compare(self, function: Callable) -> Callable:
        """What is compared where several answers are right: arguments and outputs in, tensors out.

        >>> @topk.compare
        ... def _(x, k, values, indices):
        ...     return values, x.gather(-1, indices)
        """
        self.definition.compare = function
        self._judge_again()
        return function

    # ------------------------------------------------------------ verbs

    def check(self, level: str = "quick") -> Check:
        """Check what is installed: agreement with the reference, torch's opcheck, gradients, compiled against eager.

        >>> rmsnorm.check().ok
        True
        """
        from .check import quick

        report = quick.check(self, level)
        self.last_check = report
        return report

    def restore(self, version: int | Version | None = None) -> object:
        """Put a former version back into its slot; 0 puts the reference back everywhere.

        >>> rmsnorm.restore(2)

        Without a number, in a notebook: the card as a widget, with a button at each version that can be restored.
        """
        from . import describe, show, slots

        if version is None:
            return show.widget_of(describe.card(self), self._restored)
        return slots.restore(self, version if isinstance(version, int) else version.number)

    def case_list(self, *, bench: bool = False) -> tuple[Case, ...]:
        """The cases to judge by: the op's own, or what its calls so far looked like; `bench=True` for all."""
        found = self._cases if self._cases is not None else tuple(self._learnt.values())
        return found if bench else tuple(c for c in found if not c.bench)

    @property
    def has_cases(self) -> bool:
        return self._cases is not None

    # ------------------------------------------------------------ how it shows

    def __repr__(self) -> str:
        filled = ", ".join(f"{slot} {device} v{v.number}" for (slot, device), v in self._slots.items())
        return f"<{self.schema} | {filled or 'reference'}>"

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        from . import describe, show

        return show.bundle(describe.card(self))

    def _restored(self, number: int) -> Card:
        from . import describe

        self.restore(number)
        return describe.card(self)

    def __reduce__(self):
        from .define import by_name  # a pickle names the op; the registry stands above this module

        return (by_name, (self.qualname,))

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: dict) -> Op:
        return self

    # ------------------------------------------------------------ for the modules that change an op

    def fill(self, key: tuple[str, str], version: Version) -> None:
        self._slots[key] = version

    def vacate(self, key: tuple[str, str]) -> None:
        self._slots.pop(key, None)

    def next_number(self) -> int:
        return len(self._versions)

    def record(self, version: Version) -> Version:
        """Keep a new version under its number."""
        version = replace(version, call=_caller(self))
        self._versions.append(version)
        return version

    def update(self, version: Version) -> Version:
        """The version of that number, known better now: judged again, timed."""
        self._versions[version.number] = version
        for key, held in self._slots.items():
            if held.number == version.number:
                self._slots[key] = version
        return version

    def changed(self) -> None:
        """Something that compiled callers took from this op is another now."""
        self.registration.forget_traces()

    def learn_case(self, args: tuple, kwargs: dict) -> None:
        """An op without cases remembers what it was called with: shapes and dtypes, no data."""
        if self._cases is not None or len(self._learnt) >= LEARNT_AT_MOST:
            return
        tensors = flat([*args, *kwargs.values()])
        key = tuple((t.shape, t.dtype) for t in tensors)
        if key not in self._learnt and all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in tensors):
            self._learnt[key] = learn(args, kwargs, self.schema)

    # ------------------------------------------------------------ inside

    def _register(self) -> None:
        self.registration = self._registers(self, self.definition)
        type(self).__call__ = register.entry(self.registration)
        self.__doc__ = self.doc or None
        self.__signature__ = self.schema.signature
        self.definition.forward_is_kernel = lambda device: ("forward", device) in self._slots
        self.definition.backward_is_kernel = lambda device: ("backward", device) in self._slots
        self.definition.on_call = self.learn_case
        self.registration.forget_traces()
        if not self._versions:
            self.record(Version(0, "forward", "", "python"))

    def redefine(self, definition: Definition, doc: str) -> None:
        """The op's own cell was run again: the same schema keeps the slots, another one starts afresh."""
        self.doc = doc
        self.__doc__ = doc or None
        self.notes = ()
        former = self.definition
        if str(former.schema) == str(definition.schema) and former.schema.saves == definition.schema.saves:
            for part in ("schema", "reference", "fake", "backward", "vmap", "compare", "gradient_flags", "is_random"):
                setattr(former, part, getattr(definition, part))
            self._learnt.clear()
            self.changed()
            self._judge_again()
            return
        for version in self._slots.values():
            version.kernel.remove()
        gone = tuple(f"v{v.number} ({s} {d}) was taken out: the schema changed" for (s, d), v in self._slots.items())
        self._slots.clear()
        self.registration.destroy()
        self.definition = definition
        self._cases, self._learnt = None, {}
        self._forget_evidence()
        self._register()
        self._say(gone)

    def registered_by(self, registers: type[register.Registration], definition: Definition) -> None:
        """Somebody else defines its name from now on, maybe with another schema; the former registration is destroyed."""
        if str(definition.schema) != str(self.schema):
            self._cases, self._learnt = None, {}
        self._registers, self.definition = registers, definition
        self._slots.clear()
        self._forget_evidence()
        self._register()

    def _forget_evidence(self) -> None:
        self.evidence.clear()
        self.rough_inputs = self.last_check = None

    def _judge_again(self) -> None:
        """The reference or the cases changed: kernels that now differ are taken out, and named."""
        from . import install

        self._forget_evidence()
        if self._slots:
            self._say(tuple(install.judge_again(self)))

    def _say(self, notes: tuple[str, ...]) -> None:
        self.notes = notes
        for note in notes:
            print(f"{self.name}: {note}")


def _caller(op_: Op) -> Callable:
    def call(version: Version, args: tuple, kwargs: dict) -> object:
        from . import slots

        return slots.call_version(op_, version, args, kwargs)

    return call
