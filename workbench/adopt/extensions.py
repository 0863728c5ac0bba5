"""The extensions that live in this process: which build of each runs, which ops it defines, who owns a name.

An extension is a text, or several, that says by itself what it defines. How one takes the place of another is in
`adopt`. Nothing is ever unloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..blocks import Text
from ..build.reload import Block, Class, Reloadable
from ..build.result import Build
from ..errors import SchemaError
from ..op import Op
from ..schema import Schema
from ..source import LANGUAGE_DEVICES, Source


@dataclass(frozen=True)
class Defined:
    """One name that a build defines. `schema` is None where an op cannot be made of it, and `reason` says why."""

    name: str  # "lab::f", or "lab::f.out" for an overload
    spelled: str
    keys: tuple[str, ...]
    line: int
    file: str
    schema: Schema | None
    reason: str = ""

    @property
    def qualname(self) -> str:
        return self.name.partition(".")[0]

    @property
    def op_schema(self) -> Schema:
        """The schema of one of `Made.ops`."""
        assert self.schema is not None
        return self.schema


@dataclass(frozen=True)
class Made:
    """One build of an extension, with all that it defines."""

    name: str
    sources: tuple[Source, ...]
    build: Build
    text: Text
    blocks: tuple[Block, ...]
    names: tuple[Defined, ...]
    module: str = ""  # its Python module, "" for none
    plain: dict[str, str] = field(default_factory=dict)  # functions of the module that are no ops, and why
    headers: dict[str, str] = field(default_factory=dict)  # the user's, by path, with their digests
    classes: tuple[Class, ...] = ()
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)  # torch's, of the build

    @property
    def ops(self) -> tuple[Defined, ...]:
        return tuple(d for d in self.names if d.schema is not None)

    @property
    def spaces(self) -> frozenset[str]:
        return frozenset(b.namespace for b in self.blocks)

    @property
    def language(self) -> str:
        """`cuda` where one of its sources is."""
        return "cuda" if any(s.language == "cuda" for s in self.sources) else "cpp"

    @property
    def device(self) -> str:
        """Whose slot its kernels fill."""
        return LANGUAGE_DEVICES[self.language]

    @property
    def files(self) -> frozenset[str]:
        """The files that it was built from; cells are none, their number changes with each run."""
        return frozenset(s.file for s in self.sources if "/" in s.file)


class Extension:
    """What runs now of one extension; `ops` holds every op that it ever defined, by name."""

    def __init__(self) -> None:
        self.made: Made | None = None
        self.loaded: Reloadable | None = None
        self.module: object = None
        self.ops: dict[str, Op] = {}

    @property
    def now(self) -> Made:
        """The build that runs; asked only of extensions that have one."""
        assert self.made is not None
        return self.made

    @property
    def where(self) -> str:
        return self.made.sources[0].file if self.made else ""


_live: list[Extension] = []
_loaded: dict[str, Reloadable] = {}


def live() -> Iterator[Extension]:
    return (e for e in _live if e.made is not None)


def keep(extension: Extension) -> None:
    if extension not in _live:
        _live.append(extension)


def loaded(path: str) -> Reloadable:
    """The object of that path; loaded once, and as long as the process lives."""
    if path not in _loaded:
        _loaded[path] = Reloadable(path)
    return _loaded[path]


def former(name: str, made: Made) -> Extension:
    """The extension that a text is a re-run of, or a new one.

    A cell has no name that lasts: its number changes with every run. So a re-run is recognised by what it says. In
    this order: a name that was given (`wb.load_inline`), the files, the name of a Python module, a namespace that both
    define with TORCH_LIBRARY (torch allows one block of it), more than half of the former's ops (between fragments: a
    single one), and, for a text without definitions, a block for the same namespace and key. So fragments of one
    namespace are extensions of their own, and one that defines a single op of a whole library is refused.
    """
    whole = {b.namespace for b in made.blocks if b.kind == "def"}
    names = {d.name for d in made.names}
    impls = {(b.namespace, b.key) for b in made.blocks if b.kind == "impl"}

    def wholes(e: Extension) -> set[str]:
        return {b.namespace for b in e.now.blocks if b.kind == "def"}

    def shared(e: Extension) -> int:
        return len(names & {d.name for d in e.now.names})

    rules = (
        lambda e: bool(name) and e.now.name == name,
        lambda e: bool(made.files) and e.now.files == made.files,
        lambda e: bool(made.module) and e.now.module == made.module,
        lambda e: bool(whole & wholes(e)),
        lambda e: shared(e) > (len(e.now.names) / 2 if whole or made.module or wholes(e) or e.now.module else 0),
        lambda e: not names and not e.now.names and bool(impls & {(b.namespace, b.key) for b in e.now.blocks}),
    )
    return next((e for rule in rules for e in live() if rule(e)), None) or Extension()


def refuse_taken(made: Made, mine: Extension, others: Sequence[str]) -> None:
    """SchemaError, on its line, for a name that another extension defines, or somebody unknown (`others`)."""
    owners = {d.name: e for e in live() if e is not mine for d in e.now.names}
    theirs = {c.name: e for e in live() if e is not mine for c in e.now.classes}
    for c in made.classes:
        if c.name in theirs:
            raise SchemaError(
                f"the class {c.name} is defined by {theirs[c.name].where} already: choose another name, or take it out "
                "there", line=made.text.classes.get(c.name, 0), file=made.sources[0].file,
            )  # fmt: skip
    for d in made.names:
        if d.name in owners:
            raise SchemaError(
                f"{d.name} is defined by {owners[d.name].where} already: choose another name, or take it out there",
                line=d.line, file=d.file,
            )  # fmt: skip
        if d.name in others:
            raise SchemaError(f"{d.name} is defined by another library in this process: choose another name",
                              line=d.line, file=d.file)  # fmt: skip


def beside(made_spaces: frozenset[str], mine: Extension) -> tuple[str, ...]:
    """The paths of the other extensions in the same namespaces, in the order in which they came."""
    return tuple(e.now.build.path for e in live() if e is not mine and e.now.spaces & made_spaces)
