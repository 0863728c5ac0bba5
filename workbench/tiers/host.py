"""A host cell: C++ functions on `Tensor`, torch's stable ABI. One build serves all dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from .. import directives
from ..build import body, cpp, ctypes_cpp, host, host_types, launcher, native, places, process, store
from ..build.result import Build
from ..directives import Allocate, Require, Tune
from ..errors import Diagnostic, SchemaError
from ..schema import Schema
from ..source import Function, Source
from ..trial import Launch
from ..trial.protocol import Library, Trace
from .base import Dtypes, Kernel
from .host_entry import entry, own
from .loaded import Loaded, Module


class HostKernel(Kernel):
    """A function that takes `Tensor`s and returns its results, mutates them, or fills what its directives made.

    >>> HostKernel(source, op.schema, "forward", found).build([])
    """

    tier = "host"
    runs_on = "cpu"
    key = "CPU"  # torch's dispatch key

    def __init__(
        self, source: Source, schema: Schema, slot: str, found: Sequence[Function], *, function: str = "",
        floating: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self.function = entry(found, schema, slot, function, source)
        self.unsaved, text = own(source, found, schema, slot, self.function)
        declaration = directives.parse(text, schema, entry=slot)
        super().__init__(source, schema, slot, replace(declaration, functions=(self.function,)), self.runs_on)
        self.because = f"Tensor in the signature of {self.function.name}"
        self._floating = tuple(a.name for a in schema.tensors) if floating is None else tuple(floating)
        self._build: Build | None = None
        self._launcher_build: Build | None = None
        self._once = False  # is it built for one look at it?
        self._loaded: Loaded | native.Launcher | None = None
        self._tried: set[tuple] = set()  # dtypes, of which the function takes any
        # A void function has its outputs made by directives; for others these only describe what is saved.
        self._launched = self.function.returns.strip() == "void" and bool(declaration.allocations)
        self._check_directives()

    def _check_directives(self) -> None:
        """A function that makes its own results leaves little to say: names, flags, and the shape of what it saves."""
        if self._launched:
            return
        saves = self.schema.saves if self.slot == "forward" else ()
        for s in self.declaration.statements:
            if isinstance(s, Require | Tune):
                said = "a function on Tensor checks with STD_TORCH_CHECK; 'require' and 'tune' are for raw cells"
                raise SchemaError(said, line=s.line)
            if isinstance(s, Allocate) and s.name not in saves:
                raise SchemaError(
                    f"{self.function.name} returns its results, so no directive makes {s.name}; "
                    "return void, or leave it out",
                    line=s.line,
                )
        missing = [n for n in saves if n not in self.declaration.saved]
        if missing:
            raise SchemaError(
                f"{self.function.name} returns {missing[0]} for backward; say what it is, for the fake: "
                f"'//! {missing[0]} = empty(sizes, dtype=...)'",
                line=self.function.line,
            )

    # ------------------------------------------------------------ what it takes

    def dtypes_of(self, arguments: Mapping[str, object]) -> dict[str, torch.dtype | None]:
        """The dtypes of a call's tensor arguments, by name; of a list that of its first tensor."""
        found = {}
        for a in self.declaration.arguments:
            value = arguments.get(a.name)
            if a.is_tensor_list:
                value = value[0] if isinstance(value, (list, tuple)) and value else None
            if a.is_tensor or a.is_tensor_list:
                found[a.name] = getattr(value, "dtype", None)
        return found

    def complete(self, dtypes: Dtypes) -> dict[str, torch.dtype | None]:
        return {**dict.fromkeys(self.schema.saves), **body.complete(self.declaration, dtypes)}

    @property
    def uses_saved(self) -> bool:
        taken = {self.declaration.aliases.get(p.name, p.name) for p in self.function.parameters}
        return self.slot == "backward" and bool(taken & set(self.schema.saves))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The gradients that no directive makes, or that the function's type says may be missing."""
        if self.slot != "backward" or self.tier != "host":
            return ()
        if self._launched:
            return tuple(a.name for a in self.schema.tensors if f"grad_{a.name}" not in self.declaration.gradients)
        types = zip(self._floating, host_types.result_types(self.function), strict=False)
        return tuple(name for name, t in types if t.startswith("std::optional<"))

    @property
    def native_schema(self) -> Schema:
        """A backward that leaves gradients out stands beside the op's."""
        return replace(self.schema, name=f"{self.schema.name}_partial") if self.left_out else self.schema

    # ------------------------------------------------------------ build

    def build(self, combinations: Sequence[Dtypes]) -> list[SchemaError | None]:
        with process.pool(1) as pool:
            launcher_ = pool.submit(self._build_launcher) if self._launched else None
            self._build_text()
            if launcher_ is not None:
                launcher_.result()
        self._tried |= {tuple(c.items()) for c in combinations}
        return [None] * len(combinations)

    def forget(self, dtypes: Dtypes) -> None:
        self._tried.discard(tuple(dtypes.items()))

    def _build_text(self) -> None:
        if self._build is None or not self._build.there:
            self._build = self._compile(self.declaration.flags, once=self._once)

    def _compile(self, flags: Sequence[str], *, once: bool = False) -> Build:
        file, includes = self.source.file, [self.source.path] if self.source.path else []
        return cpp.compile(self.text(), kind="host", flags=flags, file=file, includes=includes, once=once)

    def with_flags(self, more: Sequence[str]) -> HostKernel | None:
        if self.tier != "host" or self.device != "cpu":
            return None
        other = copy.copy(self)
        other.declaration = replace(self.declaration, flags=(*self.declaration.flags, *more))
        other._build, other._once = None, True
        return other

    def place(self, trace: Trace) -> str:
        if self.tier != "host" or self.device != "cpu":
            return ""
        again = partial(self._compile, (*self.declaration.flags, *places.WITH_LINES), once=True)
        return places.find(trace, self._built, again, self.source.file, [self.source.path])

    def _build_launcher(self) -> None:
        if self._launcher_build is None or not self._launcher_build.there:
            schema, gradients = self.native_schema, self._gradients()
            text = launcher.render(
                schema, self.declaration, entry=self.slot, device=self.device, gradients=gradients, key=self.key
            )
            self._launcher_build = cpp.compile(text, kind="launcher", file="launcher.cpp")

    def text(self, room: host.Room = host.CPU) -> str:
        """What the compiler sees."""
        if self._launched:
            return host.thunk(self.source, self.declaration, self.function, room)
        return host.render(
            self.source,
            self.schema,
            self.declaration,
            self.function,
            gradients=self._floating,
            name=self.native_schema.name,
            room=room,
        )

    def _gradients(self) -> tuple[str, ...] | None:
        return tuple(f"grad_{a.name}" for a in self.schema.tensors) if self.slot == "backward" else None

    @property
    def _builds(self) -> list[Build]:
        return [b for b in (self._build, self._launcher_build) if b is not None]

    @property
    def cached(self) -> bool:
        return bool(self._builds) and all(b.cached for b in self._builds)

    @property
    def digest(self) -> str:
        parts = {"text": self.source.text, "slot": self.slot, "builds": [b.key for b in self._builds]}
        return store.key({**parts, "layout": self.layout})

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self._build.diagnostics if self._build else ()

    # ------------------------------------------------------------ run

    @property
    def _built(self) -> Build:
        assert self._build is not None, "build comes before launch and install"
        return self._build

    @property
    def _launcher_built(self) -> Build:
        assert self._launcher_build is not None, "build comes before launch and install"
        return self._launcher_build

    def launch(self) -> Library:
        if not self._launched:
            return Module(self._built.path, self.layout)
        return Launch(
            self._launcher_built.path, self.declaration, (self._instance(),), self.layout, handles=self._handles
        )

    @property
    def _handles(self) -> int:
        return 2 if host.reads_no_strides(self.source) else 1

    def _instance(self) -> native.Instance:
        """One for all dtypes: no parameter of it is a pointer to elements. The launcher refuses None for numbers."""
        places = {n: i for i, n in enumerate(self.declaration.values)}
        taken = [(places[self.declaration.aliases.get(p.name, p.name)], p.type) for p in self.function.parameters]
        numbers = tuple((i, name) for i, t in taken if (name := ctypes_cpp.name_of(t)))
        made = body.Body("", ("wb_call",), (numbers,))
        return native.Instance((None,) * len(self.declaration.tensors), self._built.path, made)

    def _instances(self) -> list[native.Instance]:
        """One for each combination of dtypes that was tried: others are a miss, and tried then."""
        tensors = self.declaration.tensors
        return [
            replace(self._instance(), dtypes=tuple(dict(tried).get(n) for n in tensors), exact=True)
            for tried in sorted(self._tried, key=str)
        ]

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        if self._loaded is None:
            self._loaded = native.Launcher(self._launcher_built.path) if self._launched else Loaded(self._built.path)
        self.refresh()
        self._loaded.on_miss(lambda codes: self._arrived(codes, on_miss))
        self._loaded.register()

    def _arrived(self, codes: tuple, on_miss: Callable[[dict], str | None]) -> str | None:
        """The function takes any dtype and may be wrong for some: those that were not tried are tried now."""
        of = [a.name for a in self.declaration.arguments if a.is_tensor or a.is_tensor_list]
        known = dict(zip(self.declaration.tensors if self._launched else of, codes, strict=True))
        dtypes = {name: known[name] for name in of}
        return None if tuple(dtypes.items()) in self._tried else on_miss(dtypes)

    def refresh(self) -> None:
        if isinstance(self._loaded, native.Launcher):
            made = native.descriptor(self.declaration, self._instances(), layout=self.layout, handles=self._handles)
            self._loaded.install(made)
        elif self._loaded is not None:
            self._loaded.ask_layout(self.layout)

    def remove(self) -> None:
        if self._loaded is not None:
            self._loaded.unregister()
