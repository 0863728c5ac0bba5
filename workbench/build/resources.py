"""What a GPU kernel takes of the machine, as its compiler says it: plain data, and one short text for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """One compiled kernel: registers a thread, and bytes.

    `spill_stores` and `spill_loads` are bytes that went to local memory for want of registers, `stack` bytes of local
    memory a thread, `shared` bytes of static shared memory a block, `constant` bytes of constant memory.
    """

    kernel: str
    registers: int
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0
    constant: int = 0

    @property
    def spills(self) -> int:
        """Bytes a thread that leave the registers and come back."""
        return self.spill_stores + self.spill_loads


def summary(resources: Sequence[Resources]) -> str:
    """The worst of all kernels, as the cell's line says it.

    >>> summary([Resources("rmsnorm", 38, shared=1024)])
    '38 regs, no spills, 1 KB shared'
    """
    if not resources:
        return ""
    spilled = max(r.spills for r in resources)
    shared = max(r.shared for r in resources)
    parts = [f"{max(r.registers for r in resources)} regs", f"spills {spilled} bytes" if spilled else "no spills"]
    if shared:
        parts.append(f"{shared / 1024:.3g} KB shared" if shared >= 1024 else f"{shared} bytes shared")
    return ", ".join(parts)
