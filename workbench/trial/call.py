"""One call of an op in the child: its arguments, mapped into guarded memory and named as the schema names them.

And the ops themselves, defined from their schemas.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import torch

from .guard import Block
from .parcel import Parcel
from .protocol import Given, Made, Pickled, Step

if TYPE_CHECKING:
    from .steps import Trial


class Skip(Exception):
    """A step that needs the result of one that failed."""


class Call:
    """An op with its arguments in guarded memory. `mutated` are the tensors that its schema lets it change."""

    def __init__(self, trial: Trial, step: Step) -> None:
        name, _, overload = step.op.partition(".")
        namespace, _, short = name.partition("::")
        self.op = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
        declared = self.op._schema.arguments
        named = [(a, v) for a, v in zip(declared, step.args, strict=False)]
        named += [(a, step.keywords[a.name]) for a in declared if a.name in step.keywords]
        self.trial = trial
        self.mutated: dict[str, torch.Tensor] = {}
        self.originals: dict[int, bytearray] = {}
        self.uses: dict[tuple[int, int], list[tuple[str, Given]]] = {}
        self.writes: set[tuple[int, int]] = set()
        self.homes: dict[tuple[int, int], Block] = {}
        for argument, value in named:
            self._note(argument.name, value, bool(argument.alias_info and argument.alias_info.is_write))
        self._map()
        made = [self._value(a.name, v, bool(a.alias_info and a.alias_info.is_write)) for a, v in named]
        if any("Tensor" in str(a.type) for a in declared) and not _tensors(made):
            raise Skip("where no tensor is among the arguments torch calls the reference")
        count = min(len(step.args), len(declared))
        self.args = (*made[:count], *step.args[count:])
        names = {a.name for a, _ in named[count:]}
        rest = {k: v for k, v in step.keywords.items() if k not in names}  # unknown: the op says so itself
        self.keywords = {**{a.name: v for (a, _), v in zip(named[count:], made[count:], strict=True)}, **rest}

    def _note(self, name: str, value: object, write: bool) -> None:
        """Which storages are used, under which names, and which of them will be written to."""
        if isinstance(value, (list, tuple)):
            for i, v in enumerate(value):
                self._note(f"{name}[{i}]", v, write)
        elif isinstance(value, Given):
            key = (id(value.parcel), value.parcel.tensors[value.name][0])
            self.uses.setdefault(key, []).append((name, value))
            if write:
                self.writes.add(key)

    def _map(self) -> None:
        for key, uses in self.uses.items():
            parcel: Parcel = uses[0][1].parcel
            position, place = parcel.rooms[key[1]]
            tensors = tuple((name, given.parcel.tensors[given.name][1]) for name, given in uses)
            block = self.trial.memory.open_image(parcel.file.fd, position, place, tensors, key in self.writes)
            if block.writable:
                self.originals[block.start] = parcel.bytes_of(key[1])
            self.trial.blocks.append(block)
            self.homes[key] = block

    def _value(self, name: str, value: object, write: bool) -> object:
        """The argument itself: tensors on guarded memory, results of earlier steps, or what was given."""
        if isinstance(value, (list, tuple)):
            return [self._value(f"{name}[{i}]", v, write) for i, v in enumerate(value)]
        if isinstance(value, Made):
            if (value.step, value.index) not in self.trial.made:
                raise Skip(f"needs result {value.index} of step {value.step}, which there is not")
            made = self.trial.made[value.step, value.index]
            self.trial.name(made, name)
            return self._thaw(name, made) if write and isinstance(made, torch.Tensor) else made
        if isinstance(value, Pickled):
            return _made_again(name, value)
        if not isinstance(value, Given):
            return value
        number, meta = value.parcel.tensors[value.name]
        tensor = self.trial.memory.tensor(self.homes[id(value.parcel), number], meta)
        if write:
            self.mutated[name] = tensor
        return tensor

    def _thaw(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        block = self.trial.home(tensor)
        if block is not None and not block.argument:
            place = self.trial.blocks.index(block)
            self.trial.blocks[place] = self.trial.memory.thaw(block)
        self.mutated[name] = tensor
        return tensor


def define(schemas: tuple[str, ...], layout: object) -> list[torch.library.Library]:
    """Define the ops, and beside each `ns::name` the op `wb_layout::ns__name` with the same arguments and results."""
    libraries: dict[str, torch.library.Library] = {}

    def library(namespace: str) -> torch.library.Library:
        if namespace not in libraries:
            libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
        return libraries[namespace]

    for text in schemas:
        namespace, _, rest = text.partition("::")
        library(namespace).define(rest)
        name = rest.partition("(")[0]
        if text.partition("->")[2].strip() != "()":
            library("wb_layout").define(f"{namespace}__{rest}")
            library("wb_layout").impl(f"{namespace}__{name}", layout, "CompositeExplicitAutograd")
    return list(libraries.values())


def _made_again(name: str, thing: Pickled) -> object:
    try:
        return pickle.loads(thing.data)
    except Exception as error:  # of the class that runs in the notebook, not of the one under trial
        said = str(error).strip().splitlines()[0]
        why = f"not tried: the class under trial does not read {name}, pickled by the class that runs now: {said}"
        raise Skip(why) from None


def _tensors(values: list) -> bool:
    return any(isinstance(v, torch.Tensor) or (isinstance(v, list) and _tensors(v)) for v in values)
