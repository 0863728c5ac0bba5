"""When a rule of a profile's advice holds: one condition a rule, on the figures of one phase. Pure."""

from __future__ import annotations

from ..reports.profiling import Counters, ProfileRow
from .profile_seen import Seen
from .profile_stalls import STALLS

FULL = 0.6  # of the copy bandwidth, from which on a kernel is said to be bound by it
NEAR = 0.85  # from which on there is little to be had
IDLE = 0.2  # of the time, that is worth a word
SHORT_US = 10.0  # kernels of a GPU below this are shorter than what it takes to launch one
FUSES = 5  # operations a byte, counted of matrix products alone, beyond which these are not made into one kernel
BUSY = 1.3  # threads, up to which it is one that works
STARVED = 0.75  # of a thread, below which other processes have the CPU


def several_launches(s: Seen) -> bool:
    wasteful = not s.floor_us or s.phase.kernel_us > 1.5 * s.floor_us
    products = s.phase.flops > FUSES * s.phase.moved_bytes
    return s.phase.launches >= 3 and not products and wasteful


def dispatch(s: Seen) -> bool:
    return s.dispatch_bound and s.phase.kernel_us > 0


def idle(s: Seen) -> bool:
    busy = s.phase.kernel_us + s.phase.idle_us
    return s.gpu and s.phase.launches >= 2 and s.phase.idle_us > IDLE * busy and not s.dispatch_bound


def waits(s: Seen) -> bool:
    return s.gpu and s.phase.waits_us > IDLE * max(s.phase.wall_us, 1.0)


def bandwidth(s: Seen) -> bool:
    return s.of_copy >= FULL and not s.intense and not s.dispatch_bound


def slack(s: Seen) -> bool:
    big = s.phase.kernel_us > (SHORT_US if s.gpu else 50.0)
    other = s.intense or s.dispatch_bound or small_grid(s) or starved(s)
    return 0 < s.of_copy < FULL and s.phase.launches < 3 and big and not other


def latency(s: Seen) -> bool:
    short = 0 < s.phase.kernel_us < SHORT_US * max(s.phase.launches, 1)
    return s.gpu and short and not s.dispatch_bound and s.of_copy < FULL


def small_grid(s: Seen) -> bool:
    return s.gpu and s.multiprocessors > 0 and 0 < blocks(s.dearest) < s.multiprocessors


def blocks(row: ProfileRow | None) -> int:
    if row is None or not row.grid:
        return 0
    count = 1
    for n in row.grid:
        count *= n
    return count


def limited(s: Seen, by: str) -> bool:
    row = s.dearest
    return row is not None and 0 < row.occupancy < 0.5 and by in row.limiter and s.of_copy < NEAR


def tensor_cores(s: Seen) -> bool:
    return s.gpu and s.intense and s.half_inputs and s.tensor_cores is False


def compute(s: Seen) -> bool:
    return any(c.compute_share >= 0.8 and c.compute_share > c.memory_share for c in s.counters)


def stalled(s: Seen) -> bool:
    top = worst(s)
    return top is not None and bool(top.stalls) and top.stalls[0][1] >= 0.3 and top.stalls[0][0] in STALLS


def worst(s: Seen) -> Counters | None:
    return max(s.counters, key=lambda c: c.duration_us, default=None)


def host_copies(s: Seen) -> bool:
    return any(k.kind == "copy" and ("HtoD" in k.name or "DtoH" in k.name) for k in s.kernels)


def relayout(s: Seen) -> bool:
    copying = sum(k.self_us for k in s.kernels if copies(k))
    return s.phase.kernel_us > 0 and copying > IDLE * s.phase.kernel_us and len(s.kernels) > 1


def copies(row: ProfileRow) -> bool:
    return row.name in {"aten::copy_", "aten::clone", "aten::contiguous"} or "direct_copy" in row.name


def one_thread(s: Seen) -> bool:
    busy = STARVED <= s.phase.threads_busy < BUSY
    return not s.gpu and s.own and s.threads > 1 and busy and s.phase.kernel_us > 100 and not s.dispatch_bound


def starved(s: Seen) -> bool:
    return not s.gpu and 0 < s.phase.threads_busy < STARVED and s.phase.kernel_us > 100


def temporary(s: Seen) -> bool:
    extra = s.phase.peak_bytes - max(s.phase.kept_bytes, 0)
    return extra > 0.5 * s.phase.moved_bytes and extra > 1 << 20
