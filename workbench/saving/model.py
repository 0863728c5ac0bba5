"""What a package is made of, as plain data: files, what is compiled of them, and each op's parts.

Texts are made in the modules beside this one; `write.py` alone touches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..schema import Schema
from .cases import Kept
from .origin import Origin


@dataclass(frozen=True)
class Unit:
    """One run of a compiler: a file below `csrc/`, and the flags that its cell asked for."""

    path: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Native:
    """The native code of one slot on one device.

    `names` are the ops, without namespace, that it is registered for, and the C++ functions: `("rmsnorm",
    "rmsnorm_forward_cpu::call")`. `support` are the headers of ours that its files include. `full` is code on
    `at::Tensor`, which fits one torch alone.
    """

    slot: str
    device: str
    language: str
    tier: str
    files: Mapping[str, str]
    units: tuple[Unit, ...]
    names: tuple[tuple[str, str], ...]
    origins: Mapping[str, Origin]
    support: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    full: bool = False
    partial: str = ""  # the op beside the op's own, for a backward that leaves gradients out
    number: int = 0
    forms: tuple[str, ...] = ()  # the dtypes it was built for, "x float32, w float32"; none: the code decides


@dataclass(frozen=True)
class Script:
    """A kernel in Python: a Triton launcher, or a function from `@op.kernel`.

    `call` is the Python expression that makes it, in the op's own module.
    """

    slot: str
    device: str
    language: str
    files: Mapping[str, str]
    origins: Mapping[str, Origin]
    call: str
    needs: tuple[str, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class SavedOp:
    """One op as a package has it; `python` is the text of its reference's module."""

    schema: Schema
    doc: str
    python: str
    functions: Mapping[str, str]  # "reference", "fake", "backward", "vmap", "compare" -> the name in that module
    origins: Mapping[str, Origin]
    native: tuple[Native, ...] = ()
    scripts: tuple[Script, ...] = ()
    fakes: Mapping[str, str] = field(default_factory=dict)  # device, or "outputs" -> text of a function
    random: bool = False
    cases: Kept = field(default_factory=Kept)
    figures: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()  # the C++ classes that it takes, "lab::State"
    also: tuple[str, ...] = ()  # other saved ops that its Python functions call
    doubts: tuple[str, ...] = ()  # what speaks against it, in sentences

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def kernels(self) -> tuple[Native | Script, ...]:
        """What fills its slots."""
        return (*self.native, *self.scripts)

    @property
    def adopted(self) -> bool:
        """Does a library of the user's define it itself?"""
        return any(n.tier == "block" for n in self.native)


@dataclass(frozen=True)
class Package:
    """A whole package, before it is written: `files` by their path below the target."""

    name: str
    version: str
    ops: tuple[SavedOp, ...]
    layout: str
    title: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Callable[[str], None]] = field(default_factory=dict)  # files that are no text: how each is made
