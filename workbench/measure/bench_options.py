"""What the options of a benchmark come to, or the error that says what was meant."""

from __future__ import annotations

import torch

from ..check.quick import device_of
from ..errors import WorkbenchError
from . import refusals, statistics

EACH_S, EACH_OF_SWEEP_S = 4.0, 1.5  # of timing on a case, and on a point of a sweep


def device_for(op, device: str | None) -> str:
    chosen = device or device_of(op)
    if chosen not in statistics.RELEVANT:
        raise WorkbenchError(f"bench(device={device!r}): there are 'cpu' and 'cuda'")
    if chosen == "cuda" and not torch.cuda.is_available():
        raise WorkbenchError("bench(device='cuda'): there is no GPU here that torch can use")
    refusals.refuse(op, ["forward"], chosen, "bench")
    if device is None:
        refusals.refuse_waiting(op, chosen, "bench")
    return chosen


def slots(op, backward: bool | None, device: str) -> list[str]:
    """The slots that are timed; WorkbenchError where the backward is one of them and is interpreted."""
    found = ["forward", "backward"] if wants_backward(op, backward, device) else ["forward"]
    refusals.refuse(op, found, device, "bench")
    return found


def wants_backward(op, backward: bool | None, device: str) -> bool:
    """By default where somebody wrote a backward."""
    own = ("backward", device) in op.slots or op.definition.backward is not None
    if backward is None:
        return own and op.differentiable and op.reference is not None
    if backward and not (op.differentiable and op.reference is not None):
        raise WorkbenchError(f"bench(backward=True): {op.qualname} is not differentiable, or has no reference")
    return backward


def budget(budget_s: float | None, tasks: int, swept: bool) -> float:
    if budget_s is None:
        return tasks * (EACH_OF_SWEEP_S if swept else EACH_S)
    if isinstance(budget_s, bool) or not isinstance(budget_s, (int, float)) or not budget_s > 0:
        raise WorkbenchError(
            f"bench(budget={budget_s!r}): seconds above 0 are wanted, in all; without it {EACH_S:g} s a case"
        )
    return float(budget_s)
