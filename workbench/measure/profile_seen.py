"""What the rules of a profile's advice look at: one phase with its kernels and counters, and the machine."""

from __future__ import annotations

from dataclasses import dataclass

from ..reports.profiling import Counters, Phase, ProfileRow


@dataclass(frozen=True)
class Seen:
    """What the rules look at: one phase with its kernels and counters, and the machine.

    `tensor_cores` says whether the kernels have instructions for Tensor Cores, None where that is not known.
    """

    phase: Phase
    kernels: tuple[ProfileRow, ...] = ()
    counters: tuple[Counters, ...] = ()
    device: str = "cpu"
    copy_gb_per_s: float = 0.0
    threads: int = 1
    multiprocessors: int = 0
    half_inputs: bool = False  # float16, bfloat16 or smaller: what Tensor Cores multiply
    tensor_cores: bool | None = None
    native: bool = True  # does code that was compiled for this op run in the phase?

    @property
    def gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def of_copy(self) -> float:
        """The bandwidth of what has to be moved, as a share of a copy's; 0.0 where either is not known."""
        return self.phase.gb_per_s / self.copy_gb_per_s if self.copy_gb_per_s else 0.0

    @property
    def floor_us(self) -> float:
        """What a copy of the same bytes takes."""
        return self.phase.moved_bytes / self.copy_gb_per_s * 1e-3 if self.copy_gb_per_s else 0.0

    @property
    def intense(self) -> bool:
        """Is arithmetic rather than memory what such a phase is for? More than 30 operations a byte."""
        return self.phase.flops > 30 * self.phase.moved_bytes

    @property
    def dispatch_bound(self) -> bool:
        return self.phase.dispatch_us > max(self.phase.kernel_us, 1.0)

    @property
    def own(self) -> bool:
        """Is it the op's own code that takes the time? Nobody can vectorize a loop of torch's, or of Python."""
        return self.native and (self.dearest is None or not self.dearest.name.startswith("aten::"))

    @property
    def computing(self) -> tuple[ProfileRow, ...]:
        return tuple(k for k in self.kernels if k.kind == "kernel")

    @property
    def dearest(self) -> ProfileRow | None:
        return max(self.computing, key=lambda k: k.self_us, default=None)
