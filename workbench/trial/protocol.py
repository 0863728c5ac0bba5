"""What the notebook asks of its worker, and what it gets back: plain frozen dataclasses."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

FAULTS = ("crash", "hang", "overrun", "mutation", "process")  # statuses of a step that did what no code may


@dataclass(frozen=True)
class Meta:
    """What a tensor is but its bytes; strides and offset count elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Meta:
        """The metadata of `tensor`, also of a fake one; the offset is left at 0."""
        return cls(tensor.dtype, tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())))

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def extent(self) -> int:
        """Elements from the first to the last one, gaps included."""
        if not self.numel:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    def __str__(self) -> str:
        return f"shape {self.shape}, {str(self.dtype).removeprefix('torch.')}"

    def tensor(self, storage: torch.UntypedStorage) -> torch.Tensor:
        made = torch.empty(0, dtype=self.dtype, device=storage.device)
        return made.set_(storage, self.offset, self.shape, self.strides)


@dataclass(frozen=True)
class Made:
    """The result number `index` of the step number `step`, as an argument of a later step."""

    step: int
    index: int = 0


@dataclass(frozen=True)
class Pickled:
    """An object of a custom class on its way: it is made again where the library that has the class is loaded."""

    data: bytes

    @classmethod
    def of(cls, thing: torch.ScriptObject) -> Pickled:
        """TypeError where the class has no def_pickle."""
        if not cls.can(thing):
            name = "::".join(thing._type().qualified_name().split(".")[3:])
            raise TypeError(f"an object of {name} cannot be sent to the worker: its class has no def_pickle")
        return cls(pickle.dumps(thing))

    @staticmethod
    def can(value: object) -> bool:
        """Is it such an object, of a class with def_pickle?"""
        return isinstance(value, torch.ScriptObject) and value._has_method("__getstate__")


@dataclass(frozen=True)
class Given:
    """One tensor of a parcel, as an argument: `parcel["x"]`."""

    parcel: Any  # a Parcel
    name: str


# Places in the user's code, the innermost first: path of a shared object, address in it, did it call on from there?
Trace = tuple[tuple[str, int, bool], ...]


class Library(Protocol):
    """Anything that can put kernels behind op names in the child. What `load` returns is kept alive.

    One whose code makes no tensors but through `allocate` says so by an attribute `allocates` that is false. `code`
    are the paths of the shared objects that hold the user's own code, where there are such.
    """

    def load(self, allocate: Callable[[int], int]) -> object: ...


@dataclass(frozen=True)
class Launch:
    """A launcher and the bodies it calls: what `build.native` needs to install them."""

    path: str
    declaration: Any
    instances: tuple[Any, ...]
    layout: bool = False
    handles: int = 0
    # Values of tuned names other than the first, and `native.Choice`s.
    tuned: Mapping[str, int | float] = field(default_factory=dict, kw_only=True)
    choices: tuple[Any, ...] = field(default=(), kw_only=True)

    @property
    def allocates(self) -> bool:
        return self.handles > 0  # the launcher makes tensors through `allocate`; a function on tensors may make more

    @property
    def code(self) -> tuple[str, ...]:
        return tuple(i.library for i in (*self.instances, *(c.instance for c in self.choices)))

    def load(self, allocate: Callable[[int], int]) -> object:
        from ..build import native

        launcher = native.Launcher(self.path)
        described = native.descriptor(
            self.declaration, self.instances, layout=self.layout, handles=self.handles, tuned=self.tuned,
            choices=self.choices,
        )  # fmt: skip
        launcher.install(described)
        launcher.allocate_with(allocate)
        launcher.register()
        return launcher, described


@dataclass(frozen=True)
class Step:
    """One call of an op in the child.

    >>> Step("lab::rmsnorm_forward", (x, w, 1e-6), case="odd", outputs=("out", "rstd"))

    `args` and `keywords` hold tensors, `Given`, `Made`, lists of these, and plain values (numbers, strings, dtypes,
    devices, None). `layout` is the reference's metadata of each returned output, for kernels that ask for it;
    `allocates` names what the launcher allocates, in its order (only for messages).
    """

    op: str
    args: tuple = ()
    keywords: dict[str, object] = field(default_factory=dict)
    case: str = ""
    outputs: tuple[str, ...] = ()
    layout: tuple[Meta, ...] | None = None
    allocates: tuple[str, ...] = ()
    # Which configuration an autotuned kernel runs in it: its place, or those of all kernels, see `build.triton_tune`.
    turn: int | Mapping[str, Mapping[str, object]] | None = None
    discards: bool = False  # what it returns is neither sent back nor looked at for poison

    def output(self, index: int) -> str:
        if index < len(self.outputs):
            return self.outputs[index]
        return "out" if not index else f"out{index}"


@dataclass(frozen=True)
class Job:
    """All that one child does: define schemas, load libraries, take the steps in order."""

    steps: tuple[Step, ...]
    libraries: tuple[Library, ...] = ()
    schemas: tuple[str, ...] = ()

    @property
    def allocates(self) -> bool:
        """Does its code make tensors by itself?"""
        return any(getattr(library, "allocates", True) for library in self.libraries)


@dataclass(frozen=True)
class Result:
    """How one step went.

    `status` is one of ok, crash, hang, overrun, mutation, process (it changed the process that ran it), error, skip
    (not reached); `detail` is one sentence.
    `outputs` are what the op returned, tensors with the strides they had; `mutated` the arguments that the schema
    lets the op change, as they were after it; `unwritten` counts, for each output, the elements that nothing wrote;
    `aliases` names, for each output, the argument whose memory it shares ("" for none). `chosen` are the
    configurations that autotuned kernels ran in. `trace` is where in the user's code it died or was stopped.
    """

    step: int
    case: str
    status: str
    detail: str = ""
    signal: str = ""
    outputs: tuple = ()
    mutated: dict[str, torch.Tensor] = field(default_factory=dict)
    unwritten: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    printed: str = ""
    seconds: float = 0.0
    chosen: tuple[str, ...] = ()
    trace: Trace = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class Answer:
    """The results of a job, one for each step, and what it printed in all."""

    results: tuple[Result, ...]
    printed: str = ""
    seconds: float = 0.0
    guarded: bool = True  # False: tensors that the code made by itself were not

    @property
    def ok(self) -> bool:
        return all(r.ok for r in self.results)
