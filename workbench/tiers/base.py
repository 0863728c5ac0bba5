"""What every tier's kernel can do: be built for some dtypes, go to the worker, be installed and taken out again.

`install`, `slots` and `examine` know kernels by this alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from .. import directives
from ..build import includes
from ..build.resources import Resources
from ..directives import Declaration
from ..errors import Diagnostic, SchemaError
from ..schema import Schema
from ..source import Source
from ..trial.probe import Gradient
from ..trial.protocol import Library, Trace

Dtypes = Mapping[str, "torch.dtype | None"]


class Kernel(ABC):
    """A source as native code for one slot of an op on one device."""

    tier: str
    because: str = ""  # what in the text decided for this tier
    layout = False  # must every call ask for the strides of the outputs?
    defines_itself = False  # does its own library define the op?
    shaped = False  # does what it is built for follow from shapes, too, and not from dtypes alone?
    here = False  # is it tried in this process, by `run_here`?
    forward: Kernel | None = None  # of a backward: whose saved tensors it takes
    registration: Any = None  # the op's, for kernels that are Python functions; set before `install`
    gradient: Gradient | None = None  # how the worker takes the gradient that such a library brings, if it does

    def __init__(
        self, source: Source, schema: Schema, slot: str, declaration: Declaration, device: str = "cpu"
    ) -> None:
        self.source, self.schema, self.slot, self.device = source, schema, slot, device
        self.declaration = declaration
        self.frozen: dict[tuple, Mapping[str, object]] = {}  # (dtypes, shapes) -> the best configuration
        self.headers = includes.of(source, declaration.flags)  # as they are now

    # ------------------------------------------------------------ what it takes

    def dtypes_of(self, arguments: Mapping[str, object]) -> dict[str, torch.dtype | None]:
        """The dtypes of a call's tensor arguments, by name."""
        names = [a.name for a in self.declaration.arguments if a.is_tensor]
        return {n: getattr(arguments.get(n), "dtype", None) for n in names}

    @abstractmethod
    def complete(self, dtypes: Dtypes) -> dict[str, torch.dtype | None]:
        """The dtypes of all tensors, saved ones included, where they are known before a call."""

    unsaved: tuple[str, ...] = ()  # what the op saves for backward and this forward does not make

    @property
    @abstractmethod
    def uses_saved(self) -> bool:
        """Does this backward take what the forward saved?"""

    @property
    @abstractmethod
    def left_out(self) -> tuple[str, ...]:
        """The tensor arguments whose gradient a backward cell leaves to the reference."""

    @property
    def native_schema(self) -> Schema:
        """The schema under whose names the kernel registers."""
        return self.schema

    @property
    def step_op(self) -> str:
        """The op that a trial of the forward calls: it gives what is saved, too."""
        return f"{self.schema.qualname}_forward"

    # ------------------------------------------------------------ build

    @abstractmethod
    def build(self, combinations: Sequence[Dtypes]) -> list[SchemaError | None]:
        """Build for these dtypes; for each None, or why there is no form.

        BuildError as soon as one does not compile.
        """

    @property
    @abstractmethod
    def digest(self) -> str:
        """Of all that decides how the built kernel behaves."""

    @abstractmethod
    def forget(self, dtypes: Dtypes) -> None:
        """A form that failed its trial is no form."""

    @property
    @abstractmethod
    def cached(self) -> bool:
        """Did the store have all of it?"""

    @property
    @abstractmethod
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The compiler's warnings."""

    @property
    def forms(self) -> tuple[dict[str, torch.dtype | None], ...]:
        """The dtypes that it was built for, in order; none where one build serves all."""
        return ()

    @property
    def resources(self) -> tuple[Resources, ...]:
        """What its GPU kernels take, one entry a compiled kernel; none for code of the CPU."""
        return ()

    @property
    def unrunnable(self) -> str:
        """Why what was built cannot be run on this machine, as a few words; "" where it can.

        Such a kernel is built and kept in its slot, its cases are told as skipped: nothing that was not run agrees.
        """
        return ""

    @property
    def trial_device(self) -> str:
        """Where its trial runs: "cpu", "cuda", or "" where this machine cannot run it."""
        return "" if self.unrunnable else self.device

    def place(self, trace: Trace) -> str:
        """The line of the cell that stands behind these addresses, `line 12`; "" where that cannot be told."""
        return ""

    @property
    def interpreted(self) -> bool:
        """Is it an interpreter that runs it, in its trial at least?"""
        return False

    @property
    def stand_in(self) -> Kernel | None:
        """What runs on tensors of the CPU where this machine cannot run the kernel itself."""
        return None

    @property
    def inlined(self) -> str:
        """The digest of the text that compiled callers take into their graphs; "" where the op is opaque to them."""
        return ""

    @property
    def compiled_for(self) -> str:
        """The architecture that GPU code was compiled for, e.g. `sm_90`; "" for code of the CPU."""
        return ""

    def fakes(self, arguments: Mapping[str, object]) -> Mapping[str, torch.Tensor]:
        """Outputs and saved tensors without data, by name: what the directives say of these fake arguments."""
        return directives.fake(self.declaration, arguments)

    @cached_property
    def makes(self) -> tuple[tuple[str, ...], Hashable]:
        """(the names that `fakes` knows, what these follow from): compiled callers hold both."""
        d = self.declaration
        names = tuple(a.name for a in d.allocations)
        return names, (directives.shape_key(d), d.literals, tuple(t.values[0] for t in d.tunes.values()))

    def with_flags(self, more: Sequence[str]) -> Kernel | None:
        """The same kernel, to be built once with more flags, for tools; None where that is not done."""
        return None

    def with_lines(self) -> Kernel:
        """The same kernel with the line of each instruction in its code, for tools that name lines."""
        return self

    def turns(self, cases: Sequence[Mapping[str, object]]) -> Mapping[int, int]:
        """Which of these cases are to be tried in how many configurations, by their place; all others in one."""
        return {}

    @property
    def build_notes(self) -> tuple[str, ...]:
        """What is to be said of its builds: "for sm_90a: wgmma in the text", what a heavy header cost."""
        return ()

    def forms_text(self) -> str:
        """The dtypes that have been built, for messages."""
        return "any"

    # ------------------------------------------------------------ run

    @abstractmethod
    def launch(self) -> Library:
        """What the worker loads to run this kernel."""

    def run_here(self, arguments: Mapping[str, object]) -> list:
        """Its results on these arguments, by name, in this process."""
        raise NotImplementedError(f"a {self.tier} kernel runs in the worker")

    @abstractmethod
    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        """Hand the kernel to torch. `on_miss` gets dtypes that were not built yet: None once they are, or why not."""

    @abstractmethod
    def refresh(self) -> None:
        """See forms that were built after the install."""

    def shares_launcher(self, other: object) -> bool:
        """Can this kernel take the place of `other` by one atomic store?"""
        return False

    @abstractmethod
    def remove(self) -> None:
        """Take the kernel back from torch; the reference runs again."""
