"""What a tuning is given: for each case the space, where results are kept, and how to try and to time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..measure.clock import Call, Clock
from ..reports.report import Progress
from .space import Candidate, Space

if TYPE_CHECKING:
    from .elsewhere import Shipment


class Kept(Protocol):
    """Where results are looked up and kept, see `shelf.Shelf`."""

    def read(self) -> tuple[dict[str, dict[str, Any]], str]: ...
    def add(self, rows: Mapping[str, Mapping[str, Any]], about: str = "") -> str: ...


Tell = Callable[[Progress], object]
Tried = Iterable[tuple[str, str]]  # status ("agree" or what went wrong) and a sentence, for each candidate


@dataclass(frozen=True)
class Task:
    """One case to tune for.

    `check(candidates, left_s)` tries these in the worker, as they are asked for and for no longer than `left_s()`;
    `call()` makes the inputs and gives one call of the op with them; `shelf` is where results are kept; `unrunnable`
    says why nothing can run here; `ship(candidates)` is a task for another machine.
    """

    label: str
    space: Space
    shelf: Kept
    check: Callable[[Sequence[Candidate], Callable[[], float]], Tried]
    call: Callable[[], Call]
    clock: Callable[[], Clock]
    unrunnable: str = ""
    ship: Callable[[Sequence[Candidate]], Shipment] | None = None
