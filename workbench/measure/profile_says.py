"""What a rule of a profile's advice says where it holds: one sentence a rule, with its figures. Pure."""

from __future__ import annotations

from . import profile_when as when
from .profile_seen import Seen
from .profile_stalls import STALLS


def us(value: float) -> str:
    """`us(41.23) == "41.2 us"`, `us(41230) == "41.2 ms"`."""
    if value >= 999.5:
        return f"{value / 1000:.3g} ms" if value < 999_500 else f"{value / 1e6:.3g} s"
    return f"{value:.3g} us"


def figure(value: float) -> str:
    """`figure(1370.4) == "1,370"`, `figure(10.81) == "10.8"`."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{round(100 * share)} %"


def several(s: Seen) -> str:
    p, what = s.phase, "kernels" if s.gpu else "ops that compute"
    said = f"{p.launches:.0f} {what} where one would do: they take {us(p.kernel_us)}"
    if s.floor_us:
        said += f", moving what goes in and comes out once would take {us(s.floor_us)}"
    slot = s.phase.name
    return f"{said}. Write the {slot} as one kernel, or let `torch.compile` fuse it"


def dispatch(s: Seen) -> str:
    p = s.phase
    what = "launching" if s.gpu else "dispatch"
    said = f"{what} dominates: {us(p.dispatch_us)} on the CPU for {us(p.kernel_us)} of kernels. "
    if s.gpu:
        return said + "More work a call, `torch.compile`, or a CUDA graph (`mode='reduce-overhead'`) would hide it"
    return said + "More work a call, or one op in place of several, is what helps; a faster kernel is not"


def idle(s: Seen) -> str:
    p = s.phase
    busy = p.kernel_us + p.idle_us
    many = f"{len(p.gaps_us)} gap{'s' if len(p.gaps_us) != 1 else ''}"
    return (
        f"the GPU idles {us(p.idle_us)} of {us(busy)}, in {many} between launches "
        f"(the longest {us(max(p.gaps_us, default=0))}): fewer launches, or a CUDA graph"
    )


def waits(s: Seen) -> str:
    return (
        f"the CPU waits {us(s.phase.waits_us)} for the GPU inside the call: an `.item()`, a copy to the CPU or a "
        "synchronize; nothing can be queued behind it"
    )


def bandwidth(s: Seen) -> str:
    bound = "bandwidth-bound" if s.gpu else "memory-bound"
    rates = f"{figure(s.phase.gb_per_s)} of {figure(s.copy_gb_per_s)} GB/s"
    said = f"{bound} at {percent(s.of_copy)} of copy ({rates})"
    if s.of_copy > 1.05:
        return f"{said}: part of it comes from a cache"
    if s.of_copy >= when.NEAR:
        return (
            f"{said}: this is done. Fewer bytes would help: a smaller dtype, or fusing with what comes before or after"
        )
    return f"{said}: at most {us(s.phase.kernel_us - s.floor_us)} are left to be had without moving fewer bytes"


def slack(s: Seen) -> str:
    said = f"at {percent(s.of_copy)} of copy ({figure(s.phase.gb_per_s)} of {figure(s.copy_gb_per_s)} GB/s)"
    if s.gpu:
        cure = ". Wider loads, more bytes in flight: see `inspect()`" if s.own else ""
        return f"{said} with one launch: neither bandwidth nor launching limits it{cure}"
    cure = ". Is the loop vectorized? `inspect()` says" if s.own else ""
    return f"{said}: arithmetic or latency limits it, not memory{cure}"


def latency(s: Seen) -> str:
    each = s.phase.kernel_us / max(s.phase.launches, 1)
    return (
        f"latency-bound: {us(each)} a kernel is about what starting and draining one takes; "
        "more work a launch is what helps, a faster inner loop is not"
    )


def small_grid(s: Seen) -> str:
    blocks = when.blocks(s.dearest)
    name = s.dearest.name if s.dearest else ""
    return (
        f"`{name}` has {blocks} block{'s' if blocks != 1 else ''} for {s.multiprocessors} multiprocessors: "
        f"{s.multiprocessors - blocks} have nothing to do. Smaller blocks, or a row split over several of them"
    )


def limited(s: Seen, by: str) -> str:
    row = s.dearest
    assert row is not None
    cure = {
        "registers": "`__launch_bounds__`, a smaller tile, or fewer values held at once",
        "shared memory": "a smaller tile, or fewer stages",
        "blocks": "larger blocks",
    }[by]
    return f"occupancy of `{row.name}` is limited to {percent(row.occupancy)} by {row.limiter}: {cure}"


def tensor_cores(s: Seen) -> str:
    return (
        f"Tensor Cores are unused at these shapes: {figure(s.phase.flops / 1e9)} GFLOP of matrix products at "
        f"{figure(s.phase.tflop_per_s)} TFLOP/s in 16 bits. `tl.dot`, `mma.sync`, or sizes that are multiples of 16"
    )


def compute(s: Seen) -> str:
    c = next(c for c in s.counters if c.compute_share >= 0.8 and c.compute_share > c.memory_share)
    most = f"{percent(c.compute_share)} of what the multiprocessors can do"
    return f"`{c.kernel}` is compute-bound, at {most}: fewer or cheaper instructions"


def stalled(s: Seen) -> str:
    top = when.worst(s)
    assert top is not None
    reason, share = top.stalls[0]
    return f"warps of `{top.kernel}` wait {percent(share)} of the time {STALLS[reason]}"


def host_copies(s: Seen) -> str:
    names = ", ".join(
        dict.fromkeys(k.name for k in s.kernels if k.kind == "copy" and ("DtoH" in k.name or "HtoD" in k.name))
    )
    return f"data goes between CPU and GPU inside the call ({names}): keep it on the device"


def relayout(s: Seen) -> str:
    copies = sum(k.self_us for k in s.kernels if when.copies(k))
    return (
        f"copies take {us(copies)} of {us(s.phase.kernel_us)}: an argument that is not contiguous, or another dtype. "
        "Let the kernel take strides, or read the dtype that comes in"
    )


def one_thread(s: Seen) -> str:
    return (
        f"one thread is busy of {s.threads} ({s.phase.threads_busy:.2g} on average): "
        "`#pragma omp parallel for` with `//! flags -fopenmp`"
    )


def starved(s: Seen) -> str:
    return (
        f"this process had {s.phase.threads_busy:.2g} of one CPU: others are busy on this machine, or the op waits. "
        "These times are theirs, too; profile again when it is quiet"
    )


def temporary(s: Seen) -> str:
    extra = s.phase.peak_bytes - max(s.phase.kept_bytes, 0)
    return (
        f"{extra / 2**20:,.0f} MB of intermediate results are allocated, written and read again beside "
        f"{s.phase.moved_bytes / 2**20:,.0f} MB that go in and come out"
    )
