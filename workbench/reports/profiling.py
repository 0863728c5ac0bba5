"""Where the time of an op goes, as plain data: phases, kernels, ops, a timeline, memory, counters, advice.

How it looks is `show`'s business; how it is found out is in `measure`.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass, field

from ..errors import WorkbenchError
from .report import Report


@dataclass(frozen=True)
class Span:
    """One thing on the timeline of one call. `start_us` counts from the begin of the call.

    `kind` is "op" (a call through torch's dispatcher), "kernel" (what computes: a kernel on a GPU, an op's own time on
    a CPU), "copy" (a copy or a fill on a GPU), "launch" (a call of the CUDA runtime) or "phase". `track` names the
    thread or stream, `depth` is how many spans of the track it lies in.
    """

    name: str
    kind: str
    track: str
    start_us: float
    duration_us: float
    depth: int = 0
    phase: str = ""

    @property
    def end_us(self) -> float:
        """From the begin of the call."""
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class ProfileRow:
    """One kernel or one op in one phase; times are microseconds in one call of the op profiled.

    `count` is how often it ran in one call, `self_us` its own time, `total_us` with what it called (an op), `share`
    its part of the phase's kernel time (a kernel) or of the phase's time on the CPU (an op). Of a kernel on a GPU also
    what it takes: `occupancy` is the estimated share of the warps that a multiprocessor can hold, 0..1.
    """

    name: str
    kind: str  # "kernel", "copy" or "op"
    phase: str
    count: float
    self_us: float
    total_us: float
    share: float
    device_us: float = 0.0  # of an op: the kernels that it launched itself
    registers: int = 0
    shared_bytes: int = 0
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    occupancy: float = 0.0
    limiter: str = ""  # what keeps the occupancy from being higher


@dataclass(frozen=True)
class Phase:
    """Forward or backward in figures, for one call.

    `wall_us` is measured with no profiler running, `traced_us` with one. `kernel_us` is the sum over kernels,
    `dispatch_us` what the CPU does besides: Python, checks, the dispatcher, launches; without what the profiler adds.
    `launches` counts kernels, `copies` copies and fills on a GPU. `gaps_us` are the pauses between one kernel and the
    next. `peak_bytes` is what is allocated at most beyond what was there at its begin, `kept_bytes` what is left at its
    end. `threads_busy` is CPU time by wall time. `moved_bytes` is what has to be moved at least: inputs and outputs
    once; `flops` the operations of matrix products and the like, 0 where there are none.
    """

    name: str
    runs: str  # "v2 raw C++", "reference", "reference's vjp"
    wall_us: float
    traced_us: float
    kernel_us: float
    dispatch_us: float
    launches: float
    copies: float = 0.0
    gaps_us: tuple[float, ...] = ()
    peak_bytes: int = 0
    kept_bytes: int = 0
    threads_busy: float = 0.0
    moved_bytes: int = 0
    flops: int = 0
    waits_us: float = 0.0  # of the CPU for the GPU, inside the call

    @property
    def idle_us(self) -> float:
        """All pauses between its kernels."""
        return sum(self.gaps_us)

    @property
    def gb_per_s(self) -> float:
        """What has to be moved, by the time of the kernels."""
        return self.moved_bytes / self.kernel_us * 1e-3 if self.kernel_us else 0.0

    @property
    def tflop_per_s(self) -> float:
        """Operations of matrix products and the like, by the time of the kernels."""
        return self.flops / self.kernel_us * 1e-6 if self.kernel_us else 0.0


@dataclass(frozen=True)
class Counters:
    """What a GPU's own counters say of one kernel, from NVIDIA's ncu. Shares are 0..1, of what the GPU can do.

    `stalls` are the reasons for which warps wait, the largest first, as shares of all samples.
    """

    kernel: str
    phase: str
    duration_us: float
    occupancy: float
    memory_share: float
    compute_share: float
    dram_share: float = 0.0
    tensor_share: float = 0.0
    registers: int = 0
    stalls: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Advice:
    """One sentence from the figures: the rule that it comes from, the phase that it is about, what to do."""

    rule: str
    phase: str
    text: str


@dataclass(frozen=True)
class Profile(Report):
    """Where the time goes, call by call: the outcome of `op.profile()`.

    >>> report = rmsnorm.profile("llama")
    >>> print(report)                                        # phases, kernels, ops, advice
    >>> report.rows[0].name, report.rows[0].self_us          # the dearest kernel
    ('rmsnorm<float, 512>', 41.2)
    >>> report.export_chrome_trace("rmsnorm.json")           # for chrome://tracing and ui.perfetto.dev

    `calls` is how many calls the figures are the mean of. `timeline` and `memory` (microseconds, bytes on `device`
    beyond those at the begin) are of one of them, the one of median duration.
    """

    op: str
    case: str
    device: str  # "cpu", "cuda"
    device_name: str
    calls: int
    phases: tuple[Phase, ...]
    kernels: tuple[ProfileRow, ...]
    ops: tuple[ProfileRow, ...]
    timeline: tuple[Span, ...] = ()
    memory: tuple[tuple[float, int], ...] = ()
    counters: tuple[Counters, ...] = ()
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    copy_gb_per_s: float = 0.0  # of this device, measured; 0.0 where it was not
    threads: int = 0  # that torch may use
    seconds: float = 0.0
    trace: bytes = field(default=b"", repr=False)  # torch's own Chrome trace, compressed

    @property
    def ok(self) -> bool:
        """A profile gives no verdict: it is there, or an error was raised."""
        return True

    @property
    def rows(self) -> tuple[ProfileRow, ...]:
        """Kernels, the dearest first, then ops."""
        return (*self.kernels, *self.ops)

    def phase(self, name: str) -> Phase:
        """One phase by its name. WorkbenchError, with the names that there are, for another."""
        for found in self.phases:
            if found.name == name:
                return found
        names = ", ".join(p.name for p in self.phases) or "none"
        raise WorkbenchError(f"the profile of {self.op} has no phase {name!r}; it has {names}")

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> str:
        """Write the Chrome trace, as often as one likes, compressed if the name ends in .gz; gives the path back.

        >>> report.export_chrome_trace("rmsnorm.json")
        'rmsnorm.json'

        WorkbenchError where nothing can be written there.
        """
        name = os.fspath(path)
        data = zlib.decompress(self.trace) if self.trace else b'{"traceEvents": []}'
        try:
            with open(name, "wb") as file:
                file.write(gzip.compress(data) if name.endswith(".gz") else data)
        except OSError as error:
            raise WorkbenchError(
                f"the trace was not written to {name}: {error.strerror}; the report keeps it"
            ) from None
        return name

    def __str__(self) -> str:
        from ..show import profile_text

        return profile_text.profile(self)


__all__ = ["Advice", "Counters", "Phase", "Profile", "ProfileRow", "Span"]
