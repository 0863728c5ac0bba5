"""What kernels have in common that run on a GPU: for which one they are compiled, and whether it is there."""

from __future__ import annotations

from functools import cached_property

from .. import gpu
from ..build import driver


class OnGpu:
    """Beside a `Kernel`: `class HostCudaKernel(OnGpu, HostKernel)`."""

    runs_on = "cuda"
    key = "CUDA"  # torch's dispatch key

    @cached_property
    def arch(self) -> str:
        """What it is compiled for: see `gpu.target`."""
        return gpu.target().arch

    @property
    def compiled_for(self) -> str:
        return self.arch

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
