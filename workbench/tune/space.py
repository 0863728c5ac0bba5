"""What the tuner asks of a kernel's configurations: which there are, building them, putting one in, keeping one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..build.resources import Resources
from ..reports.tuning import Config, Value, spelled

MOST = 2000  # configurations of one kernel
REGISTERS = 65536  # of a multiprocessor, which is what a block may have, since compute capability 3.0
Turn = Mapping[str, Mapping[str, object]] | None


@dataclass(frozen=True)
class Candidate:
    """One configuration: `kernel` names the autotuned kernel it is of, "" where there is one space for all."""

    config: Config
    kernel: str = ""

    def __hash__(self) -> int:
        return hash((self.kernel, spelled(self.config)))

    @property
    def name(self) -> str:
        return f"{self.kernel}: {spelled(self.config)}" if self.kernel else spelled(self.config)


@dataclass(frozen=True)
class Failed:
    """Why a configuration is no candidate any more: the status of its row, and a sentence."""

    status: str
    reason: str


class Space(Protocol):
    """The configurations of one kernel for inputs of one form."""

    notes: tuple[str, ...]

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All of them; the first of each kernel is the one that runs without tuning."""
        ...

    def ruled_out(self, one: Candidate) -> str:
        """Why it need not be built: a `require`, a block that no GPU takes; "" for nothing."""
        ...

    def build(self, some: Sequence[Candidate]) -> Iterator[tuple[Candidate, Failed | None]]:
        """Compile these side by side; each as it is done, with what went wrong."""
        ...

    def resources(self, one: Candidate) -> tuple[Resources, ...]:
        """What a built one takes; nothing for code of the CPU."""
        ...

    def tried_as(self, one: Candidate) -> tuple[object, Turn]:
        """(the kernel that a trial of it loads, what each step of the trial is told)."""
        ...

    def enter(self, one: Candidate) -> None:
        """Let the op run this one, from now on."""
        ...

    def leave(self) -> None:
        """Let the op run what it ran before `enter`."""
        ...

    def freeze(self, one: Candidate) -> None:
        """Let the op run this one, for inputs of this form, until it is told otherwise."""
        ...

    def line(self, winners: Mapping[str, Config]) -> str:
        """What to paste into the cell: the winner of each kernel first."""
        ...


def frozen_key(tensors: Sequence[object]) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """(dtypes, shapes) of the tensor arguments of a call, `""` and `()` for one that is None."""
    given = [t if isinstance(t, Tensor) else None for t in tensors]
    dtypes = tuple("" if t is None else str(t.dtype).removeprefix("torch.") for t in given)
    return dtypes, tuple(() if t is None else tuple(t.shape) for t in given)


def product(values: Mapping[str, Sequence[Value]], most: int = MOST) -> tuple[list[dict[str, Value]], int]:
    """All combinations, at most so many, and how many there are.

    The first is all defaults; then those that differ in one name; then the rest in an order that is random, and always
    the same, so that a budget which ends early has seen some of everything.

    >>> product({"A": (1, 2), "B": (3, 4)})[0]
    [{'A': 1, 'B': 3}, {'A': 2, 'B': 3}, {'A': 1, 'B': 4}, {'A': 2, 'B': 4}]
    """
    default = {n: v[0] for n, v in values.items()}
    count = math.prod(len(v) for v in values.values())
    near = [default, *({**default, n: other} for n, v in values.items() for other in v[1:])]
    if count <= most:
        rest = [dict(zip(values, c, strict=True)) for c in itertools.product(*values.values())]
        rest = [c for c in rest if sum(c[n] != default[n] for n in values) > 1]
        random.Random(0).shuffle(rest)
        return [*near, *rest], count
    found = {tuple(c.items()): c for c in near[:most]}
    draw = random.Random(0)
    while len(found) < most:
        one = {n: draw.choice(v) for n, v in values.items()}
        found.setdefault(tuple(one.items()), one)
    return list(found.values()), count


def too_much(resources: Sequence[Resources], threads: Mapping[str, int], room: int, shared: Mapping[str, int]) -> str:
    """Why no block of these kernels fits a multiprocessor, "" where all do.

    `threads` and `shared` (dynamic, bytes) are a block's by kernel; `room` is the shared memory that a block may have,
    0 where it is not known. Registers go to a warp in pieces of 8 a thread.
    """
    for r in resources:
        name = r.kernel.partition("<")[0]
        count, each = threads.get(name, 0), -(-r.registers // 8) * 8
        if each * count > REGISTERS:
            return f"{name} takes {r.registers} registers x {count} threads; a block has {REGISTERS:,}"
        taken = r.shared + shared.get(name, 0)
        if room and taken > room:
            return f"{name} takes {taken / 1024:.4g} KB of shared memory; a block has {room / 1024:.4g} KB"
    return ""


__all__ = ["MOST", "Candidate", "Failed", "Space", "Turn", "product", "too_much"]
