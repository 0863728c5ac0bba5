"""A Triton cell: a Python function that launches `@triton.jit` kernels. One launcher serves all dtypes.

On a machine with a GPU it runs compiled. Without one its kernels are compiled for the stated architecture all the
same, and it is tried by Triton's interpreter on tensors of the CPU (`interpreted`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch

from .. import directives, gpu
from ..build import store, triton_beside, triton_call, triton_hints, triton_strides, triton_text, triton_variants
from ..build.resources import Resources
from ..errors import Diagnostic, SchemaError, ToolchainError
from ..schema import Schema
from ..source import Source
from ..trial import triton_library
from ..trial.client import worker
from ..trial.triton_library import TritonLibrary, kernel, laying_out, runnable
from . import triton_run
from .base import Dtypes, Kernel
from .triton_forms import Forms


class TritonKernel(Kernel):
    """A launcher for one slot on one device: "cuda", or "cpu" in Triton's interpreter.

    >>> kernel = TritonKernel(Source(text, "triton"), op.schema, "forward")
    >>> kernel.build([{"x": torch.float32}])
    >>> kernel.compiled()[0].resources.registers
    38
    """

    tier = "triton"
    shaped = True

    def __init__(
        self, source: Source, schema: Schema, slot: str, *, function: str = "", device: str = "cuda", here: bool = False
    ) -> None:
        _require_triton()
        name = function or ("backward" if slot == "backward" else schema.name)
        self.launcher = triton_text.launcher(source, name)
        declaration = directives.parse(source, schema, entry=slot)
        super().__init__(source, schema, slot, declaration, device)
        self.headers = triton_beside.beside(source)
        self.here = here  # is it tried in this process, so that breakpoint() and print work?
        self.plan = self._plan()
        triton_text.check_names(source, [a.name for a in self.declaration.arguments])
        self.forward: Kernel | None = None  # of a backward: whose saved tensors it takes
        self.registration: Any = None  # the op's
        self.specialised = Forms(source, self.plan, self._with_saved)
        self._tried: set[tuple] = set()
        self._on_miss: Callable[[dict], str | None] = lambda dtypes: None
        self._traced: triton_run.Traced | None = None

    # ------------------------------------------------------------ what it takes

    def _plan(self) -> triton_call.Plan:
        known = {a.name: a for a in self.declaration.arguments}
        line, file = self.launcher.line, self.source.file
        for p in self.launcher.parameters:
            if p not in known and p in self.launcher.required:
                hint = triton_hints.unbound(p, list(known))
                said = f"{self.launcher.name}: the parameter {p!r} binds to no argument; {hint}"
                raise SchemaError(said, line=line, file=file)
        wanted = len(self.schema.outputs) + len(self.schema.saves)
        if self.slot == "forward" and self.launcher.results not in (-1, wanted) and wanted != 1:
            names = ", ".join((*self.schema.outputs, *self.schema.saves)) or "nothing"
            count = f"{self.launcher.results} result{'s' * (self.launcher.results != 1)}"
            said = f"{self.launcher.name} returns {count}, {self.schema.qualname} gives {names}"
            raise SchemaError(said, line=line, file=file)
        incoming = [f"grad_{o}" for o in self.schema.outputs] if self.slot == "backward" else []
        return triton_call.Plan(
            self.schema, self.slot, self.declaration.arguments, self.launcher.name,
            tuple(p for p in self.launcher.parameters if p in known), self.left_out,
            triton_strides.reads_none(self.source), self.source.file, self.launcher.line,
            triton_strides.unread(self.launcher.node, [n for n in self.launcher.parameters if n in incoming]),
        )  # fmt: skip

    def dtypes_of(self, arguments: Mapping[str, object]) -> dict[str, torch.dtype | None]:
        """The dtypes of a call's tensor arguments, by name; of a list that of its first tensor.

        What the kernels are specialised for depends on shapes too, so the arguments are remembered for `build`.
        """
        self.specialised.meet(arguments)
        return triton_call.dtypes(self.declaration.arguments, arguments)

    def complete(self, dtypes: Dtypes) -> dict[str, torch.dtype | None]:
        return {**dict.fromkeys(self.schema.saves), **dtypes}

    @property
    def uses_saved(self) -> bool:
        return self.slot == "backward" and bool(set(self.launcher.parameters) & set(self.schema.saves))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The arguments for which every `return` of the backward writes None."""
        if self.slot != "backward":
            return ()
        names, absent = [a.name for a in self.schema.tensors], self.launcher.absent
        return tuple(n for n, none in zip(names, absent, strict=True) if none) if len(absent) == len(names) else ()

    @property
    def native_schema(self) -> Schema:
        """A backward that leaves gradients out stands beside the op's."""
        return replace(self.schema, name=f"{self.schema.name}_partial") if self.left_out else self.schema

    # ------------------------------------------------------------ build

    def build(self, combinations: Sequence[Dtypes]) -> list[SchemaError | None]:
        """Load the cell and compile what the cases seen so far launch."""
        from ..build import triton_kernels, triton_module

        if self.trial_device == "cpu":
            worker().preload(triton_library.__name__)
        module = triton_module.load(self.source)
        triton_kernels.check_constants(module, triton_module.label)
        if self.device == "cuda":
            self.specialised.build(module, interpreted=self.interpreted)
        self._tried |= {tuple(c.values()) for c in combinations}
        return [None] * len(combinations)

    def turns(self, cases: Sequence[Mapping[str, object]]) -> Mapping[int, int]:
        return self.specialised.turns(cases, interpreted=self.interpreted)

    def _with_saved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a backward with fakes of what its forward saves."""
        found = {a.name: values.get(a.name) for a in self.declaration.arguments}
        if self.uses_saved and self.forward is not None:
            made = self.forward.fakes({a.name: found[a.name] for a in self.schema.arguments})
            found.update({n: made[n] for n in self.schema.saves})
        return found

    def compiled(self) -> list[Any]:
        """Each specialisation that was compiled: `build.triton_compile.Compiled`s (name, asm, resources, signature)."""
        return list(self.specialised.compiled.values())

    @property
    def note(self) -> str:
        """Why its kernels could not be compiled before they are launched."""
        return self.specialised.note

    @property
    def build_notes(self) -> tuple[str, ...]:
        return (f"not compiled: {self.note}",) if self.note and self.interpreted and not self.compiled() else ()

    @property
    def resources(self) -> tuple[Resources, ...]:
        return tuple(c.resources for c in self.specialised.compiled.values())

    @property
    def cached(self) -> bool:
        return bool(self.specialised.compiled) and all(c.cached for c in self.specialised.compiled.values())

    @property
    def digest(self) -> str:
        import triton

        made = {"triton": triton.__version__, "target": gpu.target().arch, "trial": self.trial_device}
        return store.key({**made, "text": self._text, "slot": self.slot, "layout": self.layout})

    @property
    def _text(self) -> str:
        return store.key({"text": self.source.text, "function": self.plan.function, "beside": self.headers})

    def forget(self, dtypes: Dtypes) -> None:
        self._tried.discard(tuple(dtypes.values()))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        forms = self.specialised
        return (*forms.warnings, *triton_variants.flood(forms.compiled.values(), self.source.file))

    @property
    def unrunnable(self) -> str:
        return "no GPU here" if self.device == "cuda" and not gpu.present() else ""

    @property
    def trial_device(self) -> str:
        return "cpu" if self.unrunnable else self.device

    @property
    def interpreted(self) -> bool:
        """Does Triton's interpreter run it, in its trial at least?"""
        return self.trial_device == "cpu"

    @property
    def compiled_for(self) -> str:
        return gpu.target().arch if self.specialised.compiled else ""

    @property
    def stand_in(self) -> TritonKernel | None:
        """The same cell for tensors of the CPU, in the interpreter: what runs where this kernel cannot."""
        if not self.unrunnable:
            return None
        made = type(self)(self.source, self.schema, self.slot, function=self.plan.function, device="cpu")
        made.layout, made._tried = self.layout, set(self._tried)
        return made

    # ------------------------------------------------------------ fakes

    def fakes(self, arguments: Mapping[str, object]) -> Mapping[str, torch.Tensor]:
        """Outputs and saved tensors without data: what the launcher makes when no kernel is launched."""
        from ..build import triton_launches, triton_module

        module = triton_module.load(self.source, interpreted=self.interpreted)
        made = triton_call.call(self.plan, triton_launches.without_kernels(module, self.plan.function), arguments)
        return dict(zip(self.plan.results, made, strict=True))

    @cached_property
    def makes(self) -> tuple[tuple[str, ...], Hashable]:
        return (self.plan.results, self._text) if self.slot == "forward" else ((), self._text)

    @property
    def inlined(self) -> str:
        """The digest of the text that compiled callers take into their graphs; "" where the op stays opaque."""
        if self._traced is None:
            return ""
        tuned = repr(sorted(self.frozen.items()))
        return store.key({"text": self._text, "tuned": tuned}) if self.frozen else self._text

    # ------------------------------------------------------------ run

    def launch(self) -> TritonLibrary:
        return TritonLibrary(self.source, self.plan, self._names(), self.trial_device, self.layout)

    def run_here(self, arguments: Mapping[str, object]) -> list:
        run = runnable(self.source, self.plan, interpreted=self.interpreted)
        return laying_out(self.plan, run, always=self.layout)(arguments)

    def _names(self) -> dict[str, int]:
        """The ops that it stands behind, with how many results each gives."""
        schema = self.native_schema
        if self.slot == "backward":
            return {f"{schema.qualname}_backward": len(schema.tensors)}
        return {schema.qualname: len(schema.outputs), f"{schema.qualname}_forward": len(self.plan.results)}

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        self._on_miss = on_miss
        if self.unrunnable:
            return
        self.refresh()
        self.trace()

    def trace(self) -> None:
        """Let compiled callers look into the launcher, where they can; again after its kernels were tuned."""
        traced = None if self.interpreted or self.left_out else triton_run.traceable(self.source, self.plan)
        self._traced = traced
        if traced is not None:
            for name, count in self._names().items():
                self.registration.inlined.put(name, self.device, partial(traced, count))

    def refresh(self) -> None:
        from ..build import triton_module

        if self.unrunnable or self.registration is None:
            return
        run = runnable(self.source, self.plan, interpreted=self.interpreted)
        if self.device == "cuda":
            run = triton_run.on_one_device(self.plan, run)
        settled = laying_out(self.plan, run, always=self.layout)
        tried = triton_run.tried_first(self.plan, settled, self._tried, self._ask)
        for name, count in self._names().items():
            self.registration.set_kernel(name.partition("::")[2], self.device, kernel(self.plan, tried, count))
        if self.device == "cuda" and self.slot == "forward" and not self.layout:
            function = getattr(triton_module.load(self.source), self.plan.function)
            self.registration.go_direct("cuda", triton_run.fast(self.plan, function, tried, self._tried))

    def _ask(self, dtypes: dict) -> str | None:
        return self._on_miss(dtypes)

    def remove(self) -> None:
        if self.registration is None or self.unrunnable:
            return
        if self.device == "cuda" and self.slot == "forward":
            self.registration.go_direct("cuda", None)
        for name in self._names():
            self.registration.inlined.drop(name, self.device)
            self.registration.clear_kernel(name.partition("::")[2], self.device)


def _require_triton() -> None:
    try:
        import triton
    except ImportError as error:
        raise ToolchainError(
            f"Triton cells need Triton, which cannot be imported ({error}): pip install triton"
        ) from None
    del triton
