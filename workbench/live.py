"""The living half of an op: its slots, versions, cases and registration, and how they change.

`op.Op` is the face that users see; what is here is for the modules that install, judge and take out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from .case import Case, learn, make
from .entry import entry
from .errors import SchemaError
from .reference import Definition, flat, unheard
from .register import registration as register
from .reports.measurement import Bench
from .reports.profiling import Profile
from .reports.report import Check, Line
from .reports.tuning import Tuning
from .schema import Schema
from .version import Version

LEARNT_AT_MOST = 8  # calls that an op without cases remembers the shapes of
CASES_GONE = "its cases were taken out"
# What the op's own cell says again when it is run again. A comparison is kept until then: kernels are judged by it.
SAID_AGAIN = ("schema", "reference", "fake", "backward", "vmap", "gradient_flags", "is_random")


class Live:
    """State that changes, and the few ways in which it may."""

    public_op: torch._ops.OpOverload
    forward_op: torch._ops.OpOverload
    backward_op: torch._ops.OpOverload | None = None
    registration: register.Registration
    __call__: Callable  # the generated entry, on each op's own class

    def __init__(self, definition: Definition, registers: type[register.Registration] = register.Registration) -> None:
        self.definition = definition
        self._registers = registers
        self.doc = ""
        self._versions: list[Version] = []
        self._slots: dict[tuple[str, str], Version] = {}
        self._cases: tuple[Case, ...] | None = None
        self._cases_from: tuple | None = None  # what `case.make` takes to make them again: generator and dtypes
        self._learnt: dict[tuple, Case] = {}
        self.evidence: dict = {}  # what each case should give, while reference and cases stay
        self.rough_inputs: dict[str, Any] = {}  # by device
        self.last_check: Check | None = None
        self.checked: tuple | None = None  # what `installed` was then
        self.last_bench: Bench | None = None
        self.last_profile: Profile | None = None
        self.last_tuning: Tuning | None = None
        self.last_line: Line | None = None
        self.notes: tuple[str, ...] = ()
        self.seen: dict[str, object] = {}  # what its card was last made of, and where that card is open
        self.opened = ""
        self.timed: dict = {}  # what benches said of versions, by (slot, device, number)
        self._register()

    @property
    def schema(self) -> Schema:
        """Names, types and defaults of arguments, names of outputs; `str(op.schema)` is torch's spelling."""
        return self.definition.schema

    @property
    def name(self) -> str:
        """`"rmsnorm"`; with its namespace it is `qualname`."""
        return self.schema.name

    def case_list(self, *, bench: bool = False) -> tuple[Case, ...]:
        """The cases to judge by: the op's own, or what its calls so far looked like; `bench=True` for all."""
        found = self._cases if self._cases is not None else tuple(self._learnt.values())
        return found if bench else tuple(c for c in found if not c.bench)

    # ------------------------------------------------------------ slots and versions

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
        kept = self._versions[version.number]
        self._versions[version.number] = _known_better(kept, version)
        for key, held in self._slots.items():
            if held.number == version.number:
                self._slots[key] = _known_better(held, version)
        return version

    def installed(self) -> tuple:
        """What runs, to be compared: the versions by slot, and the backward in Python."""
        return (*sorted((key, v.number) for key, v in self._slots.items()), self.definition.backward)

    def changed(self) -> None:
        """Something that compiled callers took from this op is another now."""
        self.registration.forget_traces()

    def learn_case(self, args: tuple, kwargs: dict) -> Callable[[], object]:
        """An op without cases remembers what it was called with: shapes and dtypes, no data.

        Gives what forgets it again: a call that raises is no case to judge kernels by.
        """
        if self._cases is not None or len(self._learnt) >= LEARNT_AT_MOST:
            return unheard(args, kwargs)
        tensors = flat([*args, *kwargs.values()])
        key = tuple((t.shape, t.dtype) for t in tensors)
        if key in self._learnt or not all(map(_drawable, tensors)):
            return unheard(args, kwargs)
        self._learnt[key] = learn(args, kwargs, self.schema)
        return lambda: self._learnt.pop(key, None)

    # ------------------------------------------------------------ inside

    def _register(self) -> None:
        self.registration = self._registers(self, self.definition)
        own: Any = type(self)  # to mypy, `__call__` of a class is the metaclass's
        own.__call__ = entry(self.registration)
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
            for part in SAID_AGAIN:
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
        self._make_cases_again()

    def _make_cases_again(self) -> None:
        """For another schema, which they may fit as well: an argument with a default is new."""
        if self._cases_from is None:
            return
        function, dtypes = self._cases_from
        try:
            self._cases = make(function, self.schema, dtypes)
        except SchemaError as error:  # not printed: the cell that changed the schema goes on with its new cases
            self.notes += (f"{CASES_GONE}: {error.message.removeprefix(f'{self.schema.qualname}: ')}",)

    def registered_by(self, registers: type[register.Registration], definition: Definition) -> None:
        """Somebody else defines its name from now on; the former registration is destroyed already."""
        if str(definition.schema) != str(self.schema):
            self._cases, self._learnt = None, {}
        self._registers, self.definition = registers, definition
        self._slots.clear()
        self._forget_evidence()
        self._register()

    def _forget_evidence(self) -> None:
        from .judge import evidence

        evidence.forget(self)
        self.rough_inputs.clear()
        self.last_check = self.last_bench = self.last_profile = self.last_tuning = None

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


def _drawable(x: torch.Tensor) -> bool:
    """Can inputs like it be made from a seed? Of sparse and quantised tensors, and of subclasses, none are."""
    return type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout is torch.strided and not x.is_quantized


def _known_better(held: Version, version: Version) -> Version:
    """What is now known, of what is held: a number may stand in two slots, a Triton cell's on the GPU and the CPU."""
    same = held.device == version.device
    return version if same else replace(version, device=held.device, tier=held.tier, kernel=held.kernel)


def _caller(op_: Live) -> Callable:
    def call(version: Version, args: tuple, kwargs: dict) -> object:
        from . import restoring

        return restoring.call_version(op_, version, args, kwargs)

    return call
