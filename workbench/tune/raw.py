"""The configurations of a raw C++ or CUDA cell: the combinations of its `tune` lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from .. import gpu
from ..build import jobs, native, process
from ..build.resources import Resources
from ..directives import geometry
from ..directives.evaluate import values as evaluated
from ..directives.nodes import Require
from ..errors import BuildError, SchemaError
from ..reports.tuning import Config, spelled
from ..tiers.raw import RawKernel
from .space import MOST, Candidate, Failed, Turn, frozen_key, product, too_much


class RawSpace:
    """The `tune` lines of an installed raw kernel, for arguments of these dtypes and sizes.

    >>> space = RawSpace(kernel, {"x": x, "w": w, "eps": 1e-6})
    >>> [c.config for c in space.candidates]
    [{'BLOCK': 256}, {'BLOCK': 128}, {'BLOCK': 512}]

    `arguments` are those of the native op by name; of tensors only dtype and sizes are looked at.
    """

    def __init__(self, kernel: RawKernel, arguments: Mapping[str, object]) -> None:
        self.kernel, self.declaration = kernel, kernel.declaration
        self.arguments = dict(arguments)
        self.dtypes = kernel.dtypes_of(arguments)
        found, count = product({n: t.values for n, t in self.declaration.tunes.items()})
        self.candidates: list[Candidate] = [Candidate(c) for c in found]
        self.notes: tuple[str, ...] = ()
        if count > MOST:
            self.notes = (f"{count:,} combinations: {MOST:,} of them are looked at; `require` over tuned names prunes",)
        self._built: dict[str, RawKernel] = {}

    # ------------------------------------------------------------ before and after the compiler

    def ruled_out(self, one: Candidate) -> str:
        known = self._values(one.config)
        for s in self.declaration.statements:
            if isinstance(s, Require):
                with suppress(SchemaError, TypeError, AttributeError):
                    if not known.value(s.value):
                        return f"require {s.value.text} is not met"
        for launch in self.declaration.launches:
            for word, expressions, wrong in geometry.asked(launch):
                with suppress(SchemaError, TypeError, AttributeError):
                    said = wrong(tuple(int(known.value(e)) for e in expressions))
                    if said:
                        return f"{launch.function}: {said}"
                    if word == "shared" and 0 < self._room < int(known.value(expressions[0])):
                        size, room = int(known.value(expressions[0])) / 1024, self._room >> 10
                        return f"{launch.function} asks for {size:.4g} KB of shared memory; a block has {room} KB"
        return ""

    def _values(self, config: Config) -> Any:
        tuned: dict[str, Any] = dict(config)
        known = evaluated(self.declaration, self.arguments, tuned)
        if self.kernel.device == "cuda":
            known.known.setdefault("sm_count", gpu.sm_count())
        return known

    @property
    def _room(self) -> int:
        number = "".join(c for c in self.kernel.compiled_for if c.isdigit())
        return gpu.shared_bytes(int(number)) if number else 0

    def _does_not_fit(self, one: Candidate) -> str:
        known, threads, shared = self._values(one.config), {}, {}
        for launch in self.declaration.launches:
            with suppress(SchemaError, TypeError, AttributeError):
                threads[launch.function] = math.prod(int(known.value(e)) for e in launch.block)
                shared[launch.function] = int(known.value(launch.shared)) if launch.shared else 0
        return too_much(self.resources(one), threads, self._room, shared)

    def resources(self, one: Candidate) -> tuple[Resources, ...]:
        return self._of(one).resources

    # ------------------------------------------------------------ building

    def _of(self, one: Candidate) -> RawKernel:
        name = spelled(one.config)
        if name not in self._built:
            tuned: dict[str, Any] = dict(one.config)
            self._built[name] = self.kernel.with_tuned(tuned)
        return self._built[name]

    def build(self, some: Sequence[Candidate]) -> Iterator[tuple[Candidate, Failed | None]]:
        for one in some:
            self._of(one)
        with process.pool(jobs.most(max(1, len(some)))) as pool:
            futures: dict[Future, Candidate] = {pool.submit(partial(self._compile, one)): one for one in some}
            for done in as_completed(futures):
                yield futures[done], done.result()

    def _compile(self, one: Candidate) -> Failed | None:
        kernel = self._of(one)
        try:
            kernel.form(self.dtypes)
        except BuildError as error:
            first = error.diagnostics[0] if error.diagnostics else None
            said = f"line {first.line}: {first.message}" if first and first.line else error.message.splitlines()[0]
            return Failed("build", said)
        except SchemaError as error:
            return Failed("build", error.message)
        said = self._does_not_fit(one)
        return Failed("pruned", said) if said else None

    # ------------------------------------------------------------ running

    def tried_as(self, one: Candidate) -> tuple[RawKernel, Turn]:
        return self._of(one), None

    def enter(self, one: Candidate) -> None:
        other = self._of(one)
        other.form(self.dtypes)
        other._launcher, other.layout = self.kernel._launcher, self.kernel.layout
        other.refresh()

    def leave(self) -> None:
        self.kernel.refresh()

    def freeze(self, one: Candidate) -> None:
        """The winner goes into the launcher's table under the dtypes and sizes of the tensor arguments."""
        tensors = [self.arguments.get(a.name) for a in self.declaration.arguments if a.is_tensor]
        dtypes = tuple(t.dtype if isinstance(t, torch.Tensor) else None for t in tensors)
        shapes = tuple(tuple(t.shape) if isinstance(t, torch.Tensor) else None for t in tensors)
        rest = [c for c in self.kernel.choices if (c.dtypes, c.shapes) != (dtypes, shapes)]
        tuned: dict[str, Any] = dict(one.config)
        choice = native.Choice(dtypes, shapes, tuned, self._of(one).form(self.dtypes))
        self.kernel.choices = (choice, *rest)
        self.kernel.frozen = {**self.kernel.frozen, frozen_key(tensors): tuned}
        self.kernel.refresh()

    def line(self, winners: Mapping[str, Config]) -> str:
        return pasted(self.declaration.tunes, winners[""])


def pasted(tunes: Mapping[str, Any], winner: Config) -> str:
    """The `tune` lines with the winner first, the other values in their order.

    >>> pasted(declaration.tunes, {"BLOCK": 512})
    '//! tune BLOCK = 512, 256, 128'
    """
    lines = []
    for name, tune in tunes.items():
        values = [winner[name], *(v for v in tune.values if v != winner[name])]
        lines.append(f"//! tune {name} = {', '.join(map(str, values))}")
    return "\n".join(lines)


__all__ = ["RawSpace", "pasted"]
