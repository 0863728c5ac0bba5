"""A CUDA cell of the full tier: functions on torch::Tensor that launch kernels, built by nvcc as torch does."""

from __future__ import annotations

from collections.abc import Callable

from ..build import cuda_launches, cuda_slips, store
from ..build.resources import Resources
from ..errors import Diagnostic
from .full import FullKernel
from .on_gpu import OnGpu


class FullCudaKernel(OnGpu, FullKernel):
    """A function that takes at::Tensor and launches kernels of the same cell. Its wrapper guards the tensors' device.

    >>> FullCudaKernel(source, op.schema, "forward", found, because=tier(source, found)).build([])
    """

    @property
    def digest(self) -> str:
        return store.key({"full": super().digest, "arch": self.arch})

    @property
    def resources(self) -> tuple[Resources, ...]:
        return self._build.resources if self._build else ()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return (*super().diagnostics, *cuda_launches.lint(self.source, "full"), *cuda_slips.lint(self.source))

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        """See `FullKernel.install`; a kernel that cannot run here is given to no one."""
        if not self.unrunnable:
            super().install(on_miss)


__all__ = ["FullCudaKernel"]
