"""A raw cell as native code: one launcher for its declaration, one body for each combination of dtypes.

The launcher is built once and kept while cells change; a body is built at every edit. Both come from the store where
they were built before.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from .. import directives
from ..build import body, cpp, ctypes_cpp, jobs, launcher, native, places, process, store
from ..build.result import Build
from ..directives.vocabulary import function_name
from ..errors import Diagnostic, SchemaError
from ..schema import Schema
from ..source import Function, Source
from ..trial import Launch
from ..trial.protocol import Trace
from .base import Kernel

_launchers: dict[str, native.Launcher] = {}  # by path: a launcher is loaded once and lives as long as the process
_lock = threading.Lock()


class RawKernel(Kernel):
    """A raw cell: its functions take pointers, its directives say all else.

    >>> kernel = RawKernel(source, op.schema, "forward")
    >>> kernel.form({"x": torch.float32, "w": torch.float32})

    `declaration` is parsed at once (SchemaError, on the cell's line); nothing is compiled before it is needed.
    """

    tier = "raw"
    runs_on = "cpu"

    def __init__(
        self, source: Source, schema: Schema, slot: str, found: Sequence[Function], *, function: str = ""
    ) -> None:
        if not found:
            wanted = function or ("backward" if slot == "backward" else function_name(schema.name))
            word = "__global__ void" if source.language == "cuda" else "void"
            said = f"the cell defines no function; write '{word} {wanted}(...)'"
            if "@triton.jit" in source.text:
                said = "this is Triton, which goes into a %%triton cell"
            raise SchemaError(said, line=source.first_line, file=source.file)
        declaration = directives.parse(source, schema, entry=slot, functions=found, function=function)
        super().__init__(source, schema, slot, declaration, self.runs_on)
        self.launcher_build: Build | None = None
        self._forms: dict[tuple, tuple[native.Instance, Build]] = {}
        self._launcher: native.Launcher | None = None
        self._once = False  # is it built for one look at it?
        self.tuned: dict[str, int | float] = {}  # values of tuned names other than the first
        self.choices: tuple[native.Choice, ...] = ()  # what is called instead for sizes that were tuned

    # ------------------------------------------------------------ build

    def complete(self, dtypes: Mapping[str, torch.dtype | None]) -> dict[str, torch.dtype | None]:
        """The dtypes of all tensors, those that directives make included."""
        return body.complete(self.declaration, dtypes)

    def form(self, dtypes: Mapping[str, torch.dtype | None]) -> native.Instance:
        """The body for these dtypes, compiled or from the store. SchemaError where the kernel has no form for them."""
        known = self.complete(dtypes)
        key = tuple(known.get(n) for n in self.declaration.tensors)
        if key not in self._forms:
            self._forms[key] = self._compiled(dtypes, key)
        return self._forms[key][0]

    def _compiled(self, dtypes: Mapping[str, torch.dtype | None], key: tuple) -> tuple[native.Instance, Build]:
        made = body.instantiate(self.source, self.declaration, dtypes, self.tuned)
        build = self._compile(made.text, self.flags, once=self._once)
        return native.Instance(key, build.path, made), build

    def _renew(self, key: tuple) -> None:
        """A form that someone has cleared from the cache is made again: trials load it from there."""
        self._forms[key] = self._compiled(dict(zip(self.declaration.tensors, key, strict=True)), key)

    def _compile(self, text: str, flags: Sequence[str], *, once: bool = False) -> Build:
        return cpp.compile(text, kind="body", flags=flags, file=self.source.file, includes=self._includes, once=once)

    @property
    def flags(self) -> tuple[str, ...]:
        """The cell's own, tuned values put in."""
        return self.declaration.flags_for(self.tuned)

    @property
    def _includes(self) -> list[str]:
        return [self.source.path] if self.source.path else []

    def build(self, combinations: Sequence[Mapping[str, torch.dtype | None]]) -> list[SchemaError | None]:
        """The launcher and all these forms, side by side; for each combination None, or why it has no form.

        Raises BuildError as soon as one does not compile.
        """
        count = max(2, jobs.most(1 + len(combinations))) if len(combinations) > 1 else 2
        with process.pool(count) as pool:
            pending = pool.submit(self._build_launcher)
            lost = [pool.submit(self._renew, key) for key, (_, build) in self._forms.items() if not build.there]
            forms = [pool.submit(_no_form, self.form, c) for c in combinations or [self._usual()]]
            refusals = [f.result() for f in forms]  # the user's own mistakes before any of ours
            for each in (*lost, pending):
                each.result()
        return refusals if combinations else []

    def _usual(self) -> dict[str, torch.dtype | None]:
        """What to build for where no case tells: the dtypes that the pointers name, float32 for a template."""
        pointers = [p for f in self.declaration.functions for p in f.parameters if p.pointer]
        named = {p.name: ctypes_cpp.dtype_of(p.type) for p in pointers}
        return {a.name: named.get(a.name) or torch.float32 for a in self.declaration.arguments if a.is_tensor}

    def _build_launcher(self) -> None:
        if self.launcher_build is None or not self.launcher_build.there:
            text = launcher.render(
                self.native_schema, self.declaration, entry=self.slot, device=self.device, gradients=self._gradients()
            )
            self.launcher_build = cpp.compile(text, kind="launcher", file="launcher.cpp")

    @property
    def native_schema(self) -> Schema:
        """The names under which the launcher registers: a backward that leaves gradients out stands beside the op's."""
        return replace(self.schema, name=f"{self.schema.name}_partial") if self.left_out else self.schema

    @property
    def left_out(self) -> tuple[str, ...]:
        """The tensor arguments whose gradient a backward cell leaves to the reference."""
        if self.slot != "backward":
            return ()
        declared = set(self.declaration.gradients)
        return tuple(a.name for a in self.schema.arguments if a.is_tensor and f"grad_{a.name}" not in declared)

    def _gradients(self) -> tuple[str, ...] | None:
        return tuple(f"grad_{a.name}" for a in self.schema.tensors) if self.slot == "backward" else None

    @property
    def uses_saved(self) -> bool:
        """Does this backward take what the forward saved?"""
        taken = {p.name for f in self.declaration.functions for p in f.parameters}
        return self.slot == "backward" and bool(taken & set(self.schema.saves))

    @property
    def _built(self) -> Build:
        assert self.launcher_build is not None, "build comes before launch and install"
        return self.launcher_build

    @property
    def cached(self) -> bool:
        builds = [b for _, b in self._forms.values()] + ([self.launcher_build] if self.launcher_build else [])
        return bool(builds) and all(b.cached for b in builds)

    @property
    def forms(self) -> tuple[dict[str, torch.dtype | None], ...]:
        return tuple(self._named(key) for key in self._keys)

    @property
    def _keys(self) -> list[tuple]:
        """Forms by their dtypes: which build ended first is chance, and a package of them shall be the same again."""
        return sorted(self._forms, key=lambda key: [(ctypes_cpp.DTYPE_CODES.get(d, -1), str(d)) for d in key])

    @property
    def _instances(self) -> tuple[native.Instance, ...]:
        return tuple(self._forms[key][0] for key in self._keys)

    @property
    def digest(self) -> str:
        builds = sorted(b.key for _, b in self._forms.values())
        parts = {"text": self.source.text, "slot": self.slot, "builds": builds, "launcher": self._built.key}
        chosen = [(c.instance.library, repr(c.dtypes), repr(c.shapes), sorted(c.tuned.items())) for c in self.choices]
        return store.key({**parts, "layout": self.layout, "tuned": self.tuned, "choices": chosen})

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        builds = [*(b for _, b in self._forms.values()), *([self.launcher_build] if self.launcher_build else [])]
        found = [d for b in builds for d in b.diagnostics]
        return tuple(dict.fromkeys(found))

    # ------------------------------------------------------------ trial

    def with_flags(self, more: Sequence[str]) -> RawKernel:
        other = copy.copy(self)
        other.declaration = replace(self.declaration, flags=(*self.declaration.flags, *more))
        other._forms, other._once = {}, True
        return other

    def with_tuned(self, tuned: Mapping[str, int | float]) -> RawKernel:
        """The same kernel with these values of its tuned names, over the same launcher; nothing of it is built yet.

        >>> kernel.with_tuned({"BLOCK": 512}).build([{"x": torch.float32}])
        """
        other = copy.copy(self)
        other.tuned, other._forms, other.choices = dict(tuned), {}, ()
        return other

    def place(self, trace: Trace) -> str:
        for instance, build in self._forms.values():
            text = getattr(instance.body, "text", "")
            if any(path == build.path for path, *_ in trace):
                flags = (*self.flags, *places.WITH_LINES)
                again = partial(self._compile, text, flags, once=True)
                return places.find(trace, build, again, self.source.file, self._includes)
        return ""

    def launch(self) -> Launch:
        """What the worker needs to run this kernel."""
        return Launch(
            self._built.path, self.declaration, self._instances, self.layout, tuned=self.tuned, choices=self.choices
        )

    # ------------------------------------------------------------ install

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        """Point the launcher at these bodies and hand it to torch; a former launcher must have been removed.

        `on_miss` gets the dtypes that arrived and were not built yet; None once they are, or why they cannot be.
        """
        with _lock:
            path = self._built.path
            if path not in _launchers:
                _launchers[path] = native.Launcher(path)
            self._launcher = _launchers[path]
        self._launcher.on_miss(lambda codes: on_miss(self._named(codes)))
        self.refresh()
        self._launcher.register()

    def refresh(self) -> None:
        """Let the launcher see forms that were built after it was installed."""
        assert self._launcher is not None, "install comes first"
        described = native.descriptor(
            self.declaration, self._instances, layout=self.layout, tuned=self.tuned, choices=self.choices
        )
        self._launcher.install(described)

    def forget(self, dtypes: Mapping[str, torch.dtype | None]) -> None:
        """A form that failed its trial is no form."""
        known = self.complete(dtypes)
        self._forms.pop(tuple(known.get(n) for n in self.declaration.tensors), None)

    def shares_launcher(self, other: object) -> bool:
        """One launcher serves both, so that a swap is one atomic store."""
        built = getattr(other, "launcher_build", None)
        return built is not None and self.launcher_build is not None and built.path == self.launcher_build.path

    def remove(self) -> None:
        """Take the kernel back from torch; the reference runs again."""
        if self._launcher is not None:
            self._launcher.unregister()

    def _named(self, codes: tuple) -> dict[str, torch.dtype | None]:
        arguments = {a.name for a in self.declaration.arguments}
        return {n: d for n, d in zip(self.declaration.tensors, codes, strict=True) if n in arguments}

    def forms_text(self) -> str:
        """The dtypes that have been built, for messages."""
        first = {ctypes_cpp.short(i.dtypes[0]) for i, _ in self._forms.values() if i.dtypes}
        return ", ".join(sorted(first)) or "none"


def _no_form(form: Callable, dtypes: Mapping) -> SchemaError | None:
    try:
        form(dtypes)
    except SchemaError as error:
        return error
    return None
