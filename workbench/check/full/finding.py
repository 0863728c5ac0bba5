"""What a kernel did on one input of a full check, and how far the check is: plain data for the rows and for users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...case import Case
from ...reports.report import FAR, Mismatch
from ...trial.protocol import FAULTS

WRONG = frozenset(FAULTS) | {"mismatch", "aliasing", "unwritten", "raises"}


@dataclass(frozen=True)
class Finding:
    """How one input went.

    `status` is "agree", "skip" (nothing to compare with), "no form" (the kernel takes no such dtypes), "refused" (it
    says no, in words, to what the reference takes), "both refuse", "accepts" (it runs on what the reference refuses),
    "not run", "dies" (the reference ends the process), or one of WRONG. `share` is the largest error as a share of the
    allowed one; `differing` counts the repetitions whose results had other bits than the first; with `varies` these
    were another verdict.
    """

    case: Case
    status: str
    detail: str = ""
    share: float = 0.0
    mismatch: Mismatch | None = None
    differing: int = 0
    seconds: float = 0.0
    varies: bool = False

    @property
    def wrong(self) -> bool:
        return self.status in WRONG


def vary(found: Sequence[Finding]) -> bool:
    """Do runs of one input differ by more than sums in another order make?

    >>> vary([Finding(case, "agree"), Finding(case, "mismatch", "out: 3 of 9 elements differ")])
    True
    """
    return any(_unlike(found[0], f) for f in found[1:])


def _unlike(f: Finding, g: Finding) -> bool:
    a, b = f.mismatch, g.mismatch
    if f.status != g.status or a is None or b is None:
        return f.status != g.status or a is not b
    if (a.output, a.count, a.unwritten) != (b.output, b.count, b.unwritten):
        return True
    if not a.worst or not b.worst:
        return False
    (at, got, _), (there, other, _) = a.worst[0], b.worst[0]
    return at == there and abs(got - other) > FAR * max(abs(got), abs(other))


class Pending(Protocol):
    """Inputs that a kernel is being tried on."""

    def result(self) -> list[Finding]: ...
    def done(self) -> bool: ...


class Tries(Protocol):
    """A kernel in a slot of an op, tried on any inputs, where a crash costs nothing.

    `submit` computes here what the reference says and returns while the kernel runs elsewhere; `repeats` runs each
    input so often in one process, `spread` gives a backward incoming gradients that are one number expanded.
    `release` forgets the forms that were built for dtypes of no case, so that calls answer as they did before.
    `unrunnable` says why nothing can be run, "" where it can. `sequential` is of an interpreter, which runs one program
    after the other: no race can show, and large inputs take long.
    """

    slot: str
    device: str
    unrunnable: str
    sequential: bool
    tries_new_dtypes: bool  # is a dtype that no case has tried before its first call is answered?

    def submit(self, cases: Sequence[Case], *, repeats: int = 1, spread: bool = False) -> Pending: ...
    def release(self) -> None: ...
    def close(self) -> None: ...
