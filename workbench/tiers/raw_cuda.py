"""A raw CUDA cell as native code: one launcher for its declaration, one cubin for each combination of dtypes.

The launcher is the C++ compiler's, the cubins are NVRTC's; neither needs a GPU. Where there is none, everything is
built and nothing is loaded or given to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import torch

from .. import gpu
from ..build import driver, native
from ..build.resources import Resources
from ..build.result import Build
from .raw import RawKernel


class RawCudaKernel(RawKernel):
    """A raw CUDA cell: its `__global__` functions with a grid are launched in text order, its directives say all else.

    >>> kernel = RawCudaKernel(source, op.schema, "forward", functions(source.text, "cuda"))
    >>> kernel.build([{"x": torch.float32, "w": torch.float32}])
    >>> kernel.resources
    (Resources(kernel='rmsnorm<float, float, 256>', registers=38, ...),)
    """

    runs_on = "cuda"

    @cached_property
    def arch(self) -> str:
        """What it is compiled for, all forms alike: see `gpu.target`."""
        return gpu.target().arch

    @property
    def compiled_for(self) -> str:
        return self.arch

    def _compiled(self, dtypes: Mapping[str, torch.dtype | None], key: tuple) -> tuple[native.Instance, Build]:
        from ..build import cuda_body, nvrtc

        made = cuda_body.instantiate(self.source, self.declaration, dtypes)
        build = nvrtc.compile(
            made.text,
            arch=self.arch,
            names=made.names,
            flags=self.declaration.flags,
            file=self.source.file,
            includes=self._includes,
        )
        return native.Instance(key, build.path, made, build.names), build

    @property
    def resources(self) -> tuple[Resources, ...]:
        """What each kernel takes, form by form."""
        return tuple(r for _, build in self._forms.values() for r in build.resources)

    @property
    def unrunnable(self) -> str:
        """Why it cannot run on this machine: there is no GPU, or another one than it was compiled for."""
        if not gpu.present():
            return "no GPU here"
        here = driver.devices()
        if any(d.runs(self.arch) for d in here):
            return ""
        return f"compiled for {self.arch}, the GPU here is {here[0].arch}"

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        """See `RawKernel.install`; a kernel that cannot run here is given to no one."""
        if not self.unrunnable:
            super().install(on_miss)

    def refresh(self) -> None:
        if self._launcher is not None:
            super().refresh()
