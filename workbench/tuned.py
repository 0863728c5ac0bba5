"""`op.tune`: which version and which cases it is about, and what is said where there is nothing to tune."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from . import slots, which
from .case import Case
from .errors import SchemaError
from .judge.configured import Tried
from .register import traces
from .reports.tuning import Tuning
from .tiers import Kernel
from .tiers.raw import RawKernel
from .tune import identity
from .tune.run import run
from .tune.shelf import Shelf
from .tune.space import Candidate
from .tune.task import Task, Tell
from .version import Version

if TYPE_CHECKING:
    from .tune.elsewhere import Shipment

BUDGET_S = 60.0


def tune(
    op,
    case: object = None,
    *,
    slot: str = "forward",
    device: str | None = None,
    budget: float | None = BUDGET_S,
    configs: object = (),
    executor: Executor | None = None,
    tell: Tell = lambda told: None,
) -> Tuning:
    """See `Op.tune`."""
    budget_s = _budget(op, budget)
    version = _version(op, slot, device)
    kernel = version.kernel
    if configs and isinstance(kernel, RawKernel):
        names = ", ".join(kernel.declaration.tunes) or "BLOCK"
        raise SchemaError(
            f"configs= widens the space of a Triton cell; v{version.number} of {op.name} is {version.how}: "
            f"write the values into the cell, '//! tune {names.partition(',')[0]} = ...'"
        )
    cases = list({c.label: c for c in which.cases(op, case, verb="tune")}.values())
    tasks = [_task(op, version, c, configs) for c in cases]
    if not tasks[0].space.candidates or (len(tasks[0].space.candidates) == 1 and not configs):
        raise SchemaError(_nothing(op, version))
    report = Tuning(
        op.qualname, version.slot, version.device, version.number, version.language, tuple(t.label for t in tasks), (),
        machine=identity.machine(version.device),
    )  # fmt: skip
    if version.device == "cuda" and not kernel.unrunnable:
        torch.cuda.init()
    found = run(report, tasks, budget_s, executor, tell)
    if found.frozen and kernel.tier == "triton":
        kernel.trace()
        slots.settle(op)  # compiled callers took the launcher into their graphs
    return found


# ---------------------------------------------------------------- what it is about


def _budget(op, budget: object) -> float:
    if budget is None:
        return math.inf
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget > 0:
        raise SchemaError(f"{op.name}.tune: budget is in seconds and more than 0, got {budget!r}; None for no limit")
    return float(budget)


def _version(op, slot: str, device: str | None) -> Version:
    """The version to tune: of the GPU's slot before the CPU's, where there is something to tune."""
    if slot not in ("forward", "backward"):
        raise SchemaError(f"{op.name}.tune: slot is 'forward' or 'backward', got {slot!r}")
    if device not in (None, "cpu", "cuda"):
        raise SchemaError(f"{op.name}.tune: device is 'cpu' or 'cuda', got {device!r}")
    filled = [op.slots[slot, d] for d in ((device,) if device else ("cuda", "cpu")) if (slot, d) in op.slots]
    if not filled:
        where = f" on {device}" if device else ""
        raise SchemaError(
            f"{op.name}.tune: the {slot}{where} runs {op.still(slot, device or 'cpu')}, and that has nothing to tune; "
            "write a cell with a line such as '//! tune BLOCK = 128, 256', or a Triton cell with triton.autotune"
        )
    able = [v for v in filled if _tunable(v.kernel)]
    runs = [v for v in able if not v.kernel.unrunnable]
    if not able:
        raise SchemaError(_nothing(op, filled[0]))
    return (runs or able)[0]


def _tunable(kernel: Any) -> bool:
    if isinstance(kernel, RawKernel):
        return bool(kernel.declaration.tunes)
    return isinstance(kernel, Kernel) and kernel.tier == "triton" and kernel.device == "cuda"


def _nothing(op, version: Version) -> str:
    kernel = version.kernel
    said = f"{op.name}.tune: v{version.number} ({version.how}) has nothing to tune"
    if not isinstance(kernel, Kernel):
        return f"{said} until it was tried: call the op once, or give it cases"
    if kernel.tier == "triton":
        if kernel.device == "cpu":
            return f"{said}: it runs in Triton's interpreter"
        return f"{said}: put @triton.autotune(configs=[...], key=[...]) above a kernel, or pass configs="
    if isinstance(kernel, RawKernel):
        return f"{said}: write a line such as '//! tune BLOCK = 128, 256, 512' into its cell"
    return f"{said}: `tune` lines are for raw cells"


def _shipment(one: Tried, some: Sequence[Candidate]) -> Shipment:
    from . import shipped  # for an executor alone

    return shipped.shipment(one, some)


def _task(op, version: Version, case: Case, configs: object) -> Task:
    one = Tried(op, version, case)
    space = one.space(configs)
    judge = repr((traces.judge_digest(op.definition), case.error, case.atol, case.rtol))
    shelf = Shelf(identity.key(version.kernel, which.form_of(op, case), judge))
    return Task(
        case.label, space, shelf, partial(one.check, space), one.call, one.clock, version.kernel.unrunnable,
        lambda some: _shipment(one, some),
    )  # fmt: skip
