"""How many warps of a kernel fit on one multiprocessor at a time, from what it takes: NVIDIA's rules, in plain numbers.

What a multiprocessor holds is in `gpu`; how allocations are rounded is as in `cuda_occupancy.h`, which comes with every
CUDA toolkit. An estimate: it says what may be resident, not what is busy.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..gpu import LIMITS, Limits, reserved_bytes

WARP = 32
REGISTERS, REGISTERS_A_THREAD, PARTITIONS = 65536, 255, 4  # of a multiprocessor, the same on all that are supported
REGISTER_UNIT = 256  # registers are given to a warp in units of this many
THREADS_A_BLOCK = 1024


@dataclass(frozen=True)
class Occupancy:
    """`blocks` fit on a multiprocessor, which is `share` of the warps that it can hold; `limiter` says why no more.

    >>> occupancy(90, threads=256, registers=32)
    Occupancy(blocks=8, share=1.0, limiter='nothing: all 64 warps are in use')
    """

    blocks: int
    share: float
    limiter: str


def occupancy(arch: int, *, threads: int, registers: int, shared: int = 0) -> Occupancy | None:
    """The occupancy of a kernel: `threads` and bytes of `shared` memory a block, `registers` a thread.

    None for an architecture whose limits are not known here.
    """
    limits = LIMITS.get(arch)
    if limits is None:
        return None
    if not 0 < threads <= THREADS_A_BLOCK:
        return Occupancy(0, 0.0, f"a block has at most {THREADS_A_BLOCK} threads")
    warps = -(-threads // WARP)
    room = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _by_registers(warps, registers),
        "shared memory": _by_shared(arch, limits, shared),
    }
    blocks = min(room.values())
    share = blocks * warps / limits.warps
    return Occupancy(blocks, share, _limiter(room, blocks, share, limits, warps, registers, shared))


def _by_registers(warps: int, registers: int) -> int:
    """Each quarter of a multiprocessor gives registers to its own warps; a block may need all four."""
    a_warp = _up(max(registers, 1) * WARP, REGISTER_UNIT)
    if registers > REGISTERS_A_THREAD or a_warp * _up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // a_warp * PARTITIONS // warps


def _by_shared(arch: int, limits: Limits, shared: int) -> int:
    own, unit = reserved_bytes(arch), 128 if arch >= 80 else 256
    whole = limits.shared_kb * 1024
    if shared > whole - own:
        return 0
    taken = _up(shared + own, unit)
    return whole // taken if taken else limits.blocks


def _limiter(
    room: dict[str, int], blocks: int, share: float, limits: Limits, warps: int, registers: int, shared: int
) -> str:
    least = [name for name, fit in room.items() if fit == blocks]
    if not blocks:
        why = {"registers": f"{registers} a thread", "shared memory": f"{shared / 1024:.3g} KB a block"}
        return f"{least[0]}: {why.get(least[0], '')}; it cannot be launched"
    if share == 1.0:
        return f"nothing: all {limits.warps} warps are in use"
    told = {
        "registers": f"registers: {registers} a thread",
        "shared memory": f"shared memory: {shared / 1024:.3g} KB a block",
        "blocks": f"blocks: at most {limits.blocks}, and one has {warps} warp{'s' if warps > 1 else ''}",
        "warps": f"warps: {limits.warps} are no multiple of the {warps} of a block",
    }
    order = ("registers", "shared memory", "blocks", "warps")
    return " and ".join(told[name] for name in order if name in least)


def registers_for(arch: int, threads: int, share: float) -> int:
    """The most registers a thread with which blocks of `threads` could reach `share` of the warps; 0: none.

    >>> registers_for(90, 256, 1.0)
    32
    """
    limits = LIMITS[arch]
    warps = -(-threads // WARP)
    for registers in range(REGISTERS_A_THREAD, 0, -1):
        fit = min(limits.warps // warps, limits.blocks, _by_registers(warps, registers))
        if fit * warps >= share * limits.warps:
            return registers
    return 0


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
