"""Whom an op is measured against: its reference, that compiled, a former version, any callable."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from ..errors import WorkbenchError
from ..version import Version, asked
from . import refusals

REFERENCE, COMPILED, FORMER = "reference", "torch.compile", "former"
NAMES = {"reference": REFERENCE, "compile": COMPILED, "compiled": COMPILED, "torch.compile": COMPILED, "former": FORMER}
EXAMPLE = 'against=["reference", "torch.compile", 3, lambda x, w, eps: ...]'


class Lending(Protocol):
    """A version that can take its slot for a while."""

    version: Version

    def enter(self) -> None: ...
    def leave(self) -> None: ...


@dataclass(frozen=True)
class Contestant:
    """What is timed under a name. `function` takes the op's arguments; `lent` stands in the op's slot meanwhile."""

    name: str
    function: Callable
    lent: Lending | None = None
    compiles: bool = False  # is it to be compiled for each case?
    own: bool = False

    def ready(self) -> Contestant:
        """For one case: what torch compiles is compiled for its sizes alone, as often as there are cases."""
        return replace(self, function=compiled(self.function)) if self.compiles else self


def compiled(function: Callable) -> Callable:
    """`torch.compile` of a function for one set of sizes.

    Its code is copied first: Dynamo counts the recompilations of a code object, and after eight runs it uncompiled.
    """
    if isinstance(function, types.FunctionType):
        copied = types.FunctionType(
            function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        copied.__kwdefaults__ = function.__kwdefaults__
        function = copied
    return torch.compile(function, dynamic=False)


class Elsewhere(WorkbenchError):
    """A contestant that has no place in the slot that is measured, and may have one in the other."""


def by_slot(
    op, against: object, slots: Sequence[str], device: str, lend: Callable[[Version], Lending]
) -> dict[str, list[Contestant]]:
    """For each slot the op itself, then those that `against` names.

    Without it: the former version, `torch.compile`, the reference.

    >>> [c.name for c in by_slot(rmsnorm, None, ["forward"], "cpu", lend)["forward"]]
    ['v7', 'v6', 'torch.compile', 'reference']

    A version stands in the slot that it fills; a slot in which none of those that are named has a place is left out.
    WorkbenchError for one that has no place at all, and for a name that means nothing.
    """
    if against is None:
        return {s: _entered(op, s, device, _by_default(op, s, device, lend)) for s in slots}
    given = _listed(against)
    found: dict[str, list[Contestant]] = {s: [] for s in slots}
    for name, one in given:
        placed, refused = False, None
        for slot in slots:
            try:
                made = _contestant(op, one, slot, device, lend)
            except Elsewhere as error:
                refused = refused or error
                continue
            found[slot].append(replace(made, name=name or made.name))
            placed = True
        if not placed and refused is not None:
            raise refused
    return {s: _entered(op, s, device, some) for s, some in found.items() if some or not given}


def _by_default(op, slot: str, device: str, lend: Callable[[Version], Lending]) -> list[Contestant]:
    former = _former(op, slot, device)
    given: list[object] = [former] if former is not None else []
    given += [COMPILED, REFERENCE] if op.reference is not None else []
    return [_contestant(op, one, slot, device, lend) for one in given]


def _entered(op, slot: str, device: str, others: Sequence[Contestant]) -> list[Contestant]:
    """The op first; of a name that is taken there is a second."""
    runs = op.runs(slot, device)
    found = [Contestant(f"v{runs.number}" if runs.number else op.name, op, own=True)]
    for made in others:
        taken = {c.name for c in found}
        free = (n for n in (made.name, *(f"{made.name} ({i})" for i in range(2, len(found) + 2))) if n not in taken)
        found.append(replace(made, name=next(free)))
    return found


def _listed(against: object) -> list[tuple[str, object]]:
    if isinstance(against, Mapping):
        return [(str(n), one) for n, one in against.items()]
    if isinstance(against, Sequence) and not isinstance(against, str):
        return [("", one) for one in against]
    return [("", against)]


def _contestant(op, one: object, slot: str, device: str, lend: Callable[[Version], Lending]) -> Contestant:
    if isinstance(one, str):
        return _named(op, one, slot, device, lend)
    if isinstance(one, (int, Version)) and not isinstance(one, bool):
        return _version(op, asked(op, one), slot, device, lend)
    if callable(one):
        return Contestant(_name_of(one), fitted(one, op))
    raise WorkbenchError(f"bench(against={one!r}): what is that? Write for instance {EXAMPLE}")


def _named(op, name: str, slot: str, device: str, lend: Callable[[Version], Lending]) -> Contestant:
    known = NAMES.get(name)
    if known is None and name[:1] == "v" and name[1:].isdigit():
        return _contestant(op, int(name[1:]), slot, device, lend)
    if known is None:
        raise WorkbenchError(f"bench(against={name!r}): no such contestant; there are {EXAMPLE}")
    if known == FORMER:
        former = _former(op, slot, device)
        if former is None:
            raise Elsewhere(f"{op.name} has no former version of {slot} {device} that was installed")
        return _version(op, former, slot, device, lend)
    if op.reference is None:
        raise WorkbenchError(f"{op.name} has no reference to measure against; name a version or a callable")
    return Contestant(known, op.reference, compiles=known == COMPILED)


def _version(op, version: Version, slot: str, device: str, lend: Callable[[Version], Lending]) -> Contestant:
    if not version.number:
        return _named(op, REFERENCE, slot, device, lend)
    if version.number == op.runs(slot, device).number:
        return Contestant(f"v{version.number}", op)  # the op against itself
    if (version.slot, version.device) != (slot, device):
        raise Elsewhere(
            f"v{version.number} of {op.name} is for {version.slot} {version.device}, measured is {slot} {device}"
        )
    refusals.refuse_printing(op, version)
    return Contestant(f"v{version.number}", op, lent=lend(version))


def _former(op, slot: str, device: str) -> Version | None:
    """The version before the one that runs, among those that were installed, can be again and can be timed."""
    now = op.runs(slot, device).number
    fitting = [
        v for v in op.versions[1:now]
        if (v.slot, v.device) == (slot, device) and not v.refused and not v.prints
        and not getattr(v.kernel, "unrunnable", "") and not getattr(v.kernel, "defines_itself", False)
        and not op.registration.foreign and str(getattr(v.kernel, "schema", op.schema)) == str(op.schema)
    ]  # fmt: skip
    return fitting[-1] if fitting else None


def _name_of(function: Any) -> str:
    name = getattr(function, "qualname", "") or getattr(function, "__name__", "") or type(function).__name__
    return "a lambda" if name == "<lambda>" else str(name)


def fitted(function: Callable, op) -> Callable:
    """The function as one that takes all arguments of the op; what it has no parameter for must be at its default.

    >>> fitted(lambda x, w: ..., rmsnorm)(x, w, 1e-6)      # eps is the op's own default
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in: it is called as the op is
        return function
    kinds = inspect.Parameter
    places = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    wanted = op.schema.positional
    if any(p.kind == kinds.VAR_POSITIONAL for p in parameters) or len(places) >= len(wanted):
        return function
    left_out = wanted[len(places) :]

    def call(*args: object, **kwargs: object) -> object:
        defaults = op.schema.bind(args[: len(places)], kwargs)
        for a, value in zip(left_out, args[len(places) :], strict=False):
            if isinstance(value, torch.Tensor) or defaults[a.name] != value:
                raise TypeError(f"it takes no {a.name}, which is {value!r} here")
        return function(*args[: len(places)], **kwargs)

    return call
