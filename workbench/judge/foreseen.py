"""What can be said of a kernel that cannot be run here: its checks, its launches and the shapes of what it gives.

No value is computed. What nothing speaks against is told as not run, never as agreeing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import gpu
from ..annotations import class_name
from ..case import Case
from ..reports.report import NOT_RUN, Outcome
from ..schema import Schema
from ..tiers import Kernel
from ..trial.protocol import Pickled
from .evidence import Evidence

CHECKS = ("is not met (line", "dimensions, got")  # of a `require`, of an unpacking


def outcome(kernel: Kernel, e: Evidence) -> Outcome:
    """How a case would fail as far as the directives tell, else a skip that says "compiled, not run".

    >>> outcome(kernel, evidence(op, case, "forward", kernel)).detail
    'block = 2048: the block is 2048, a block has at most 1024 threads (line 8)'
    """
    from ..inspect import launchable

    name, dtype, declared = e.case.name, e.case.dtype_name, kernel.declaration
    if not declared.launches:
        return Outcome(name, dtype, "skip", detail=NOT_RUN)
    made, said = _made(kernel, e)
    said = said or launchable.refused(declared, e.values, kernel.compiled_for)
    if said:
        return Outcome(name, dtype, "error", detail=said)
    for wanted in e.wanted.outputs if kernel.slot == "forward" else ():
        got = made.get(wanted.name)
        if got is not None and (got.shape != wanted.value.shape or got.dtype != wanted.value.dtype):
            return Outcome(name, dtype, "mismatch", float("inf"), _other(wanted.name, got, wanted.value))
    return Outcome(name, dtype, "skip", detail=NOT_RUN)


def objects(schema: Schema, cases: Sequence[Case]) -> str:
    """Why these cases cannot be tried: they hold an object of a custom class that cannot be pickled. "" otherwise."""
    for a in schema.arguments if cases else ():
        value = cases[0].bound(schema)[a.name] if class_name(a.type) else None
        if isinstance(value, torch.ScriptObject) and not Pickled.can(value):
            return (
                f"not tried: {a.name} is an object of {class_name(a.type)}, which without def_pickle cannot be sent to "
                f"the worker; {schema.name}.check() runs the cases here"
            )
    return ""


def _made(kernel: Kernel, e: Evidence) -> tuple[dict[str, torch.Tensor], str]:
    """What the directives allocate for this case, or the check that refuses it."""
    arguments = {n: v.to("meta") if isinstance(v, torch.Tensor) else v for n, v in e.values.items()}
    try:
        return dict(kernel.fakes({**arguments, "sm_count": gpu.sm_count()})), ""
    except Exception as error:  # what is known at a call alone: a saved tensor, a value
        said = str(error).split("\n")[0]
        return {}, said.partition(": ")[2] if any(check in said for check in CHECKS) else ""


def _other(name: str, got: torch.Tensor, wanted: torch.Tensor) -> str:
    if got.dtype != wanted.dtype:
        kinds = [str(t.dtype).removeprefix("torch.") for t in (got, wanted)]
        return f"{name} is {kinds[0]}, the reference gives {kinds[1]}"
    return f"{name} has shape {tuple(got.shape)}, the reference gives {tuple(wanted.shape)}"
