"""What a Triton launcher launches on the cases that it has met, and what is compiled of that."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import gpu
from ..build import triton_call
from ..build.triton_call import Plan
from ..errors import Diagnostic, WorkbenchError
from ..source import Source

MOST_MET = 64


class Forms:
    """The compiled forms of one launcher, and the arguments that asked for them.

    `complete` adds what a backward takes beside its own arguments: fakes of what the forward saves.
    """

    def __init__(self, source: Source, plan: Plan, complete: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self.source, self.plan, self.complete = source, plan, complete
        self.compiled: dict[str, Any] = {}
        self.warnings: tuple[Diagnostic, ...] = ()  # on launches that run nothing, and the like
        self.note = ""  # why its kernels could not be compiled before they are launched
        self._met: dict[tuple, dict[str, Any]] = {}
        self._launches: dict[tuple, list[Any]] = {}

    def meet(self, arguments: Mapping[str, Any]) -> None:
        """What the kernels are specialised for depends on shapes too, so these are remembered for `build`."""
        if len(self._met) < MOST_MET:
            self._met.setdefault(_metadata(arguments), dict(arguments))

    def build(self, module: Any, *, interpreted: bool) -> None:
        """Compile what the arguments met so far launch: where it runs, every form that its trial will launch."""
        from ..build import triton_compile

        met = list(self._met.values())
        every = self.turns(met, interpreted=interpreted)
        seen = [
            replace(s, every=i in every)
            for i, values in enumerate(met)
            for s in self.seen(values, interpreted=interpreted)
        ]
        sized = [triton_call.size(values) > 0 for values in met for _ in self.seen(values, interpreted=interpreted)]
        found = [s.odd for s, some in zip(seen, sized, strict=True) if some and s.odd is not None]
        self.warnings = tuple(dict.fromkeys((*self.warnings, *found)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = triton_compile.compile(module, seen, gpu.target(), self.compiled, exact=not interpreted)
        self.compiled |= made
        noted = [d for w in caught if (d := _noted(w, self.source)) is not None]
        self.warnings = tuple(dict.fromkeys((*self.warnings, *noted)))

    def turns(self, cases: Sequence[Mapping[str, Any]], *, interpreted: bool) -> Mapping[int, int]:
        """Of the cases in the same dtypes the smallest one goes through all configurations of autotuned kernels."""
        from ..build import triton_launches

        smallest: dict[tuple, tuple[int, int]] = {}
        for i, values in enumerate(cases):
            dtypes = tuple(triton_call.dtypes(self.plan.arguments, values).values())
            size = triton_call.size(values)
            if size and (dtypes not in smallest or size < smallest[dtypes][0]):
                smallest[dtypes] = size, i
        seen = {i: self.seen(cases[i], interpreted=interpreted) for _, i in smallest.values()}
        found = {i: triton_launches.choices(launches, interpreted=interpreted) for i, launches in seen.items()}
        return {i: count for i, count in found.items() if count > 1}

    def seen(self, values: Mapping[str, Any], *, interpreted: bool) -> list[Any]:
        """What it launches for such arguments; nothing where that is known only when it runs."""
        from ..build import triton_module

        known = _metadata(values)
        if known not in self._launches:
            try:
                self._launches[known] = self._launched(values, insists=not interpreted)
            except WorkbenchError:
                raise
            except Exception as error:  # a launcher that looks at data: Triton compiles when it is launched
                why = triton_module.told(error, self.source.file).strip().splitlines()[0]
                self.note = f"its launches are not known before it runs ({why})"
                self._launches[known] = []
        return self._launches[known]

    def _launched(self, values: Mapping[str, Any], *, insists: bool) -> list[Any]:
        from ..build import triton_launches, triton_module

        given = self.complete(values)
        taken = {n: given[n] for n in self.plan.takes}
        look = partial(triton_launches.launches, triton_module.load(self.source), self.plan.function, taken)
        first, second = ("cuda:0", "") if insists else ("", "cuda:0")  # launchers may insist on the device
        try:
            return look(device=first)
        except Exception:
            with suppress(Exception):
                return look(device=second)
            raise


def _noted(caught: warnings.WarningMessage, source: Source) -> Diagnostic | None:
    """What Triton warns of while it compiles, on the line that it names or on that which calls the function of `tl`.

    None for what is no user's business; what others warn of is passed on.
    """
    from ..build.triton_module import label

    words, file, line = str(caught.message), label(caught.filename), caught.lineno
    if not file and "triton" not in Path(caught.filename).parts:
        warnings.warn_explicit(caught.message, caught.category, caught.filename, caught.lineno)
        return None
    if issubclass(caught.category, DeprecationWarning | PendingDeprecationWarning):
        return None
    if not file:
        named = re.search(r"\btl\.(\w+)", words)
        rows = source.text.splitlines() if named else []
        at = next((i for i, row in enumerate(rows) if named and re.search(rf"\b{named[1]}\b", row)), None)
        file, line = source.file, 0 if at is None else source.first_line + at
    if words.startswith("Logical operators 'and' and 'or'"):
        words += ": the interpreter takes one of the two alone"
    return Diagnostic(file, line, 0, "warning", words.strip())


def _metadata(values: Mapping[str, Any]) -> tuple:
    """Equal for calls that launch the same."""

    def one(value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            return (tuple(value.shape), value.stride(), value.dtype, value.storage_offset())
        return tuple(map(one, value)) if isinstance(value, (list, tuple)) else repr(value)

    return tuple((n, one(v)) for n, v in values.items())
