"""A raw CUDA cell as native code: one launcher for its declaration, one cubin for each combination of dtypes.

The launcher is the C++ compiler's, the cubins are NVRTC's; neither needs a GPU. Where there is none, everything is
built and nothing is loaded or given to torch.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from ..build import cuda_body, cuda_slips, native, nvrtc
from ..build.cuda_body import CudaBody
from ..build.resources import Resources
from ..build.result import Build
from ..errors import SchemaError
from ..schema import Schema
from ..source import Function, Source
from .on_gpu import OnGpu
from .raw import RawKernel


class RawCudaKernel(OnGpu, RawKernel):
    """A raw CUDA cell: its `__global__` functions with a grid are launched in text order, its directives say all else.

    >>> kernel = RawCudaKernel(source, op.schema, "forward", functions(source.text, "cuda"))
    >>> kernel.build([{"x": torch.float32, "w": torch.float32}])
    >>> kernel.resources
    (Resources(kernel='rmsnorm<float, float, 256>', registers=38, ...),)
    """

    _line_info = False

    def __init__(
        self, source: Source, schema: Schema, slot: str, found: Sequence[Function], *, function: str = ""
    ) -> None:
        super().__init__(source, schema, slot, found, function=function)
        self._unlaunched = cuda_slips.unlaunched(self.declaration, found)
        try:
            cuda_slips.check(source, self.declaration, found)
        except SchemaError as error:
            error.file = error.file or source.file
            raise

    def build(self, combinations: Sequence[Mapping[str, torch.dtype | None]]) -> list[SchemaError | None]:
        """See `RawKernel.build`. The forms are compiled in one run of NVRTC, which takes one text at a time anyway."""
        self._together(combinations)
        return super().build(combinations)

    def _together(self, combinations: Sequence[Mapping[str, torch.dtype | None]]) -> None:
        """All forms that are not built yet; what has no form is left to be told one by one."""
        wanted: dict[tuple, CudaBody] = {}
        for dtypes in combinations:
            with contextlib.suppress(SchemaError):
                known = self.complete(dtypes)
                key = tuple(known.get(n) for n in self.declaration.tensors)
                if key not in self._forms:
                    wanted[key] = cuda_body.instantiate(self.source, self.declaration, dtypes, self.tuned)
        if len(wanted) < 2:
            return
        bodies = cuda_body.together(tuple(wanted.values()))
        if len({made.text for made in bodies}) > 1:
            return
        whole, first = self._run(bodies[0].text, tuple(n for made in bodies for n in made.names)), 0
        for key, made in zip(wanted, bodies, strict=True):
            mine = slice(first, first + len(made.names))
            first = mine.stop
            part = replace(whole, names=whole.names[mine], resources=whole.resources[mine])
            self._forms[key] = native.Instance(key, whole.path, made, part.names), part

    def _compiled(self, dtypes: Mapping[str, torch.dtype | None], key: tuple) -> tuple[native.Instance, Build]:
        made = cuda_body.instantiate(self.source, self.declaration, dtypes, self.tuned)
        build = self._run(made.text, made.names)
        return native.Instance(key, build.path, made, build.names), build

    def _run(self, text: str, names: tuple[str, ...]) -> Build:
        return nvrtc.compile(
            text,
            arch=self.arch,
            names=names,
            flags=self.flags,
            file=self.source.file,
            includes=self._includes,
            line_info=self._line_info,
        )

    def with_lines(self) -> RawCudaKernel:
        other = copy.copy(self)
        other._line_info, other._forms = True, {}
        return other

    @property
    def build_notes(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                [*super().build_notes, *self._unlaunched, *(b.note for _, b in self._forms.values() if b.note)]
            )
        )

    @property
    def resources(self) -> tuple[Resources, ...]:
        """What each kernel takes, form by form."""
        return tuple(r for _, build in self._forms.values() for r in build.resources)

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        """See `RawKernel.install`; a kernel that cannot run here is given to no one."""
        if not self.unrunnable:
            super().install(on_miss)

    def refresh(self) -> None:
        if self._launcher is not None:
            super().refresh()
