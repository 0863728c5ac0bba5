"""The installed GPU kernels of an op once more, in a process of their own under NVIDIA's ncu: for `op.profile`.

The process is the one of the GPU trial, started by the tool, as compute-sanitizer's is. Only native kernels can be sent
there: the reference and functions of Python live in the notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .. import gpu
from ..case import SEED, Case
from ..errors import ToolchainError, WorkbenchError
from ..inputs import draw, fresh, tensors_in
from ..measure import profile_counters
from ..register import pullback
from ..reports.profiling import Counters, ProfileRow
from ..tiers import Kernel
from ..trial import Job, Meta, Step
from .partners import layout_of, schemas_of

LIMIT_S = 240.0
Counted = tuple[tuple[Counters, ...], tuple[str, ...]]
_closed: list[str] = []  # why the counters of this machine are closed: it is not tried again


def counting(op) -> Callable[[Case, Sequence[ProfileRow]], Counted] | None:
    """What asks the counters of the kernels of a profile; None where there is no GPU.

    It gives what was counted, and notes on what was not.
    """
    if not gpu.present():
        return None
    return lambda case, rows: count(op, case, rows)


def count(op, case: Case, rows: Sequence[ProfileRow], device: str = "cuda") -> Counted:
    """The counters of an op's native GPU kernels on one case; where they cannot be had a note says why."""
    installed = [v.kernel for (_, where), v in sorted(op.slots.items()) if where == device]
    if not any(isinstance(k, Kernel) and k.trial_device == device for k in installed):
        return (), ()
    path = profile_counters.program()
    if not path or _closed:
        return (), (_closed[0] if _closed else profile_counters.MISSING,)
    try:
        names = [profile_counters.bare(r.name) for r in rows if r.kind == "kernel"]
        text = run(path, job(op, case, device), names, "cpu" if device == "cpu" else "")
    except WorkbenchError as error:
        return (), (f"the GPU's counters were not read: {error.message}",)
    found, why = profile_counters.counters(text, rows), profile_counters.refusal(text)
    if why == profile_counters.REFUSED:
        _closed[:] = [why]
    if not found and not why:
        why = "the GPU's counters: ncu wrote nothing of these kernels"
    return found, (why,) if why else ()


def run(path: str, work: Job, kernels: Sequence[str], device: str = "") -> str:
    """What ncu at `path` writes while a trial process takes the steps of a job."""
    from ..trial import under_tool

    told = under_tool.run(lambda log: profile_counters.command(path, log, kernels), work, LIMIT_S, device=device)
    if not told.log:
        raise ToolchainError(f"ncu wrote nothing.\n{told.output}".rstrip())
    return told.log


def job(op, case: Case, device: str = "cuda") -> Job:
    """One forward, and a backward on what it gives, with the kernels that are installed for the GPU."""
    schema = op.schema
    forward, backward = (op.runs(slot, device).kernel for slot in ("forward", "backward"))
    values = fresh(case.bound(schema), device="cpu")
    kernels, steps = [], []
    if isinstance(forward, Kernel):
        kernels.append(forward)
        args, keywords = op.definition.split(list(values.values()))
        steps.append(
            Step(
                forward.step_op, tuple(args), keywords, case=case.label, outputs=(*schema.outputs, *schema.saves),
                layout=layout_of(op, values), allocates=tuple(a.name for a in forward.declaration.allocations),
            )
        )  # fmt: skip
    if isinstance(backward, Kernel) and (isinstance(forward, Kernel) or not backward.uses_saved):
        kernels.append(backward)
        steps.append(_backward(op, case, backward, values, device))
    return Job(tuple(steps), tuple(k.launch() for k in kernels), schemas_of(schema, kernels))


def _backward(op, case: Case, kernel: Kernel, values: dict[str, object], device: str) -> Step:
    """The backward on the outputs and saved tensors of a forward that is run here, for cotangents of its own."""
    schema = op.schema
    args, keywords = op.definition.split(list(fresh(values, device=device).values()))
    with torch.no_grad():
        results = op.forward_op(*args, **keywords)
    made = results if isinstance(results, (list, tuple)) else (results,)
    names = (*schema.outputs, *schema.saves)
    known: dict[str, object] = {**values, **{n: _home(x) for n, x in zip(names, made, strict=False)}}
    for i, n in enumerate(schema.outputs):
        like = next(iter(tensors_in([known[n]])))
        known[f"grad_{n}"] = (
            draw(tuple(like.shape), like.dtype, None, None, SEED - i) if like.is_floating_point() else None
        )
    lists = any(a.is_tensor_list for a in schema.tensors)
    owners = [] if lists else [known[a.name] for a in schema.tensors]
    return Step(
        f"{kernel.native_schema.qualname}_backward",
        tuple(known.get(a.name, pullback.absent()) for a in kernel.declaration.arguments),
        case=case.label,
        outputs=tuple(f"grad_{a.name}" for a in schema.tensors),
        layout=None
        if lists
        else tuple(Meta.of(x if isinstance(x, torch.Tensor) else pullback.absent()) for x in owners),
        allocates=tuple(a.name for a in kernel.declaration.allocations),
    )


def _home(x: object) -> object:
    return x.cpu() if isinstance(x, torch.Tensor) else x
