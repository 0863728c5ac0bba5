"""What kernels have in common that run on a GPU: for which one they are compiled, and whether it is there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from .. import gpu
from ..build import architectures, driver


class OnGpu:
    """Beside a `Kernel`: `class HostCudaKernel(OnGpu, HostKernel)`."""

    runs_on = "cuda"
    key = "CUDA"  # torch's dispatch key
    source: Any
    declaration: Any

    @property
    def arch(self) -> str:
        """What it is compiled for: `flags -arch=...`, else what its text needs of `gpu.target`, `sm_90a` for sm_90.

        Of several in the flags the one that the GPU here runs; see `architectures.architecture`.
        """
        return self._chosen[0]

    @cached_property
    def _chosen(self) -> tuple[str, str]:
        """(the architecture, why it is another than that of `gpu.target`)"""
        flags: Sequence[str] = self.declaration.flags
        return architectures.chosen(flags, architectures.texts(self.source.text, self.source.path, flags))

    @property
    def compiled_for(self) -> str:
        return self.arch

    @property
    def build_notes(self) -> tuple[str, ...]:
        arch, because = self._chosen
        return (f"for {arch}: {because} in the text",) if because not in ("", "flags") else ()

    @property
    def unrunnable(self) -> str:
        """Why it cannot run on this machine: there is no GPU, or another one than it was compiled for."""
        if not gpu.present():
            return "no GPU here"
        here = driver.devices()
        if any(d.runs(self.arch) for d in here):
            return ""
        return f"compiled for {self.arch}, the GPU here is {here[0].arch}"


__all__ = ["OnGpu"]
