"""The inputs of one kernel with how they went, as the answers come in, and which row each belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

from .finding import Pending, Tries
from .rows import Tried
from .variant import Variant


@dataclass
class Sweep:
    """What one kernel was handed, and what has come back of it."""

    tries: Tries
    waiting: list[tuple[list[Variant], Pending]] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    left_out: int = 0

    def collect(self, *, wait: bool) -> int:
        """Take in what is done; how many jobs were."""
        count = 0
        while self.waiting and (wait or self.waiting[0][1].done()):
            variants, pending = self.waiting.pop(0)
            self.tried += [Tried(v, f) for v, f in zip(variants, pending.result(), strict=True)]
            count += 1
        return count

    def grouped(self) -> dict[tuple[str, str], list[Tried]]:
        """By row, in the order in which they were tried: `("sizes", "odd")`; all sizes of a backward are one."""
        found: dict[tuple[str, str], list[Tried]] = {}
        for t in self.tried:
            v = t.variant
            key = (v.check, v.about) if self.tries.slot == "forward" else ("gradients", v.check)
            found.setdefault(key, []).append(t)
        return found
