"""The trial of a kernel: its op's cases as a job for the worker, and the verdict on what came back.

Only native code runs in the worker. What a case should give is in `evidence`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from .. import gpu
from ..case import Case
from ..check import agree
from ..check.expect import as_tensor, leaves
from ..errors import SchemaError, ToolchainError, TrialError
from ..inputs import moved
from ..reference import flat
from ..register import pullback, registration
from ..reports.report import Outcome, Trial
from ..schema import Schema
from ..tiers import Kernel
from ..trial import Job, Meta, Result, Step, Worker, worker
from ..trial.protocol import FAULTS
from ..version import Version
from . import configurations, foreseen, pulled, tried_here, verdicts
from .evidence import Evidence, evidence, evidences, learn_layout
from .steps import steps_of, with_backward

if TYPE_CHECKING:
    from ..trial.gpu_client import GpuWorker

LIMIT_S = 10.0


def examine(op, kernel: Kernel, cases: Sequence[Case], *, limit_s: float | None = None) -> Trial:
    """Run a kernel on these cases in the worker and judge what it left behind.

    >>> examine(rmsnorm, kernel, rmsnorm.case_list()).ok
    True

    Every case must have a form for its dtypes already (`kernel.build`). A backward that takes saved tensors runs
    after the installed forward, in the same child; so does a new forward with the installed backward that needs it.
    """
    started, limit_s = time.perf_counter(), limit_s or LIMIT_S * (3 if kernel.tier == "triton" else 1)
    if not cases:
        return Trial(())
    if held := foreseen.objects(op.schema, cases):
        return Trial(tuple(Outcome(c.name, c.dtype_name, "skip", detail=held) for c in cases))
    if not kernel.trial_device:
        return Trial(tuple(foreseen.outcome(kernel, evidence(op, c, kernel.slot, kernel)) for c in cases))
    forward, backward = _pair(op, kernel)
    if forward is not None and forward.trial_device != kernel.trial_device:
        return Trial(tuple(Outcome(c.name, c.dtype_name, "skip", detail="its forward was not run") for c in cases))
    found = evidences(op, kernel, cases)
    learn_layout(op, kernel, cases)
    if kernel.here:
        results = [(e, tried_here.result(op, kernel, forward, e)) for e in found]
        outcomes = tuple(_outcome(op, kernel.slot, e, r, limit_s) for e, r in results)
        return Trial(outcomes, time.perf_counter() - started, notes=_notes(found))
    steps, judged = _steps(op, kernel, found, forward, backward)
    kernels = tuple(k for k in (forward, backward) if k is not None)
    known = verdicts.key(kernels, [e for _, e in judged if e is not None])
    remembered = verdicts.recall(known)
    if remembered is not None:
        return replace(remembered, seconds=time.perf_counter() - started)
    answer = worker_of(kernel).run(_job(op, kernels, steps), limit_s)
    told = [placed(kernels, r) for r in answer.results]
    pairs = [(slot, e, r) for (slot, e), r in zip(judged, told, strict=True) if e is not None]
    tried = [((slot, e), r, _outcome(op, slot, e, r, limit_s)) for slot, e, r in pairs]
    outcomes, left_out = configurations.folded(tried)
    trial = Trial(outcomes, time.perf_counter() - started, answer.printed, (*_notes(found), *left_out))
    if answer.guarded:
        verdicts.remember(known, trial)
    return trial


def _steps(
    op, kernel: Kernel, found: Sequence[Evidence], forward: Kernel | None, backward: Kernel | None
) -> tuple[list[Step], list]:
    """What the worker does for each case, and what is judged of it: (slot, evidence), None where nothing is."""
    steps, judged = steps_of(op, kernel, found, forward if kernel.slot == "backward" else None)
    if kernel.slot == "forward" and backward is not None:
        more = [evidence(op, e.case, "backward", backward) for e in found]
        steps, judged = with_backward(op, backward, steps, judged, more)
    if kernel.gradient is not None:
        steps, judged = pulled.after(op, [e.case for e in found], steps, judged)
    return configurations.in_turn(kernel, found, steps, judged)


def _job(op, kernels: Sequence[Kernel], steps: Sequence[Step]) -> Job:
    return Job(tuple(steps), tuple(k.launch() for k in kernels), schemas_of(op.schema, kernels))


def job_of(op, kernel: Kernel, cases: Sequence[Case]) -> Job:
    """The trial of a kernel as a job, for who runs it elsewhere. Every case must have a form for its dtypes."""
    forward, backward = _pair(op, kernel)
    steps, _ = _steps(op, kernel, evidences(op, kernel, cases), forward, backward)
    return _job(op, [k for k in (forward, backward) if k is not None], steps)


class InPython(Protocol):
    """A kernel that is a Python function: it runs in this process."""

    function: Callable
    device: str


def judge(op, kernel: Kernel | InPython, cases: Sequence[Case]) -> Trial:
    """Build what these cases ask for and try it on them; cases that the kernel has no form for are skipped."""
    if not isinstance(kernel, Kernel):
        if kernel.device == "cuda" and not gpu.present():
            return Trial(tuple(Outcome(c.name, c.dtype_name, "skip", detail="not run: no GPU here") for c in cases))
        return Trial(tuple(judge_here(op, kernel.function, c, kernel.device) for c in cases))
    tried, refusals = build(op, kernel, cases)
    trial = examine(op, kernel, tried)
    return replace(trial, outcomes=(*trial.outcomes, *refusals))


def build(op, kernel: Kernel, cases: Sequence[Case]) -> tuple[list[Case], list[Outcome]]:
    """Build every form that the cases ask for; cases in dtypes that the kernel has no form for are left out."""
    wanted = [dtypes_for(op, kernel, e) for e in evidences(op, kernel, cases)]
    combinations = list({tuple(w.items()): w for w in wanted}.values())
    answers = {tuple(c.items()): r for c, r in zip(combinations, kernel.build(combinations), strict=True)}
    told = [(c, answers[tuple(w.items())]) for c, w in zip(cases, wanted, strict=False)]
    tried = [c for c, refused in told if refused is None]
    refusals = [Outcome(c.name, c.dtype_name, "skip", detail=r.message) for c, r in told if r is not None]
    if cases and not tried:
        raise next(r for r in answers.values() if r is not None)
    forward, backward = _pair(op, kernel)
    other = backward if kernel.slot == "forward" else forward
    if other is not None:
        for c in tried:
            other.build([dtypes_for(op, other, evidence(op, c, other.slot, other))])
    return tried, refusals


def _pair(op, kernel: Kernel) -> tuple[Kernel | None, Kernel | None]:
    """The forward and the backward kernel that take part."""
    if kernel.defines_itself:
        return kernel, None
    if kernel.slot == "backward":
        if not kernel.uses_saved:
            return None, kernel
        forward = op.runs("forward", kernel.device).kernel
        if not isinstance(forward, Kernel):
            names = ", ".join(op.schema.saves)
            raise SchemaError(
                f"{op.name}.backward takes {names}, which the forward saves; but the forward still runs as the "
                "reference, which saves nothing. Install a forward cell first."
            )
        return forward, kernel
    backward = op.runs("backward", kernel.device).kernel
    taken = isinstance(backward, Kernel) and backward.uses_saved and backward.trial_device == kernel.trial_device
    return kernel, backward if taken else None


def dtypes_for(op, kernel: Kernel, e: Evidence) -> dict[str, torch.dtype | None]:
    """The dtypes of a kernel's tensor arguments on a case; of saved tensors those that the forward declares."""
    found = kernel.dtypes_of(e.values)
    forward = op.runs("forward", kernel.device).kernel
    if kernel.uses_saved and isinstance(forward, Kernel):
        kernel.forward = forward
        made = forward.complete({a.name: found[a.name] for a in op.schema.arguments if a.is_tensor})
        found |= {n: made[n] for n in op.schema.saves}
    return found


def schemas_of(schema: Schema, kernels: Sequence[Kernel | None]) -> tuple[str, ...]:
    if any(k is not None and k.defines_itself for k in kernels):
        return ()
    found = [str(schema), registration.forward_schema(schema)]
    for k in kernels:
        if k is not None and k.slot == "backward":
            found.append(registration.native_backward(schema, k.native_schema.name))
    return tuple(found)


# ---------------------------------------------------------------- verdict


def placed(kernels: Sequence[Kernel], result: Result) -> Result:
    """A result that tells on which line of its cell the kernel died, where that can be told."""
    where = next((w for k in kernels if (w := k.place(result.trace))), "") if result.trace else ""
    return replace(result, detail=f"{where}: {result.detail}") if where else result


def _outcome(op, slot: str, e: Evidence, result, limit_s: float) -> Outcome:
    case, dtype = e.case.name, e.case.dtype_name
    if not result.ok:
        detail = result.detail
        if result.status == "hang":
            detail = re.sub(r"still running after \S+ s", f"did not end within {limit_s:g} s", detail)
        return Outcome(case, dtype, result.status, detail=detail)
    schema = op.schema
    names = (*schema.outputs, *schema.saves) if slot == "forward" else [f"grad_{a.name}" for a in schema.tensors]
    returned = _flat(names, result.outputs)
    got = {n: as_tensor(t) for n, t in returned if t is not None}
    unwritten = dict(zip((n for n, _ in returned), result.unwritten, strict=False))
    alias = next(((n, a) for (n, _), a in zip(returned, result.aliases, strict=False) if a), None)
    if alias:
        detail = f"{alias[0]} shares memory with {alias[1]}; an output must be a tensor of its own"
        return Outcome(case, dtype, "mismatch", detail=detail)
    if slot == "forward":
        got = {n: t for n, t in got.items() if n not in schema.saves} | dict(result.mutated)
    else:
        judged = {o.name for o in e.wanted.outputs}
        got = {n: t for n, t in got.items() if n in judged and not pullback.is_absent(t)}
        wanted = replace(e.wanted, outputs=tuple(o for o in e.wanted.outputs if o.name in got))
        if not wanted.outputs:
            return Outcome(case, dtype, "skip", detail="no gradient here")
        return agree.judge(got, wanted, unwritten=unwritten)
    return agree.judge(got, e.wanted, unwritten=unwritten)


def _flat(names: Sequence[str], outputs: Sequence[object]) -> list[tuple[str, object]]:
    """Results by name, those of a list as `outs[0]`, `outs[1]`: the names that the reference's answers have."""
    found: list[tuple[str, object]] = []
    for name, value in zip(names, outputs, strict=False):
        if isinstance(value, (list, tuple)):
            found += [(f"{name}[{i}]", v) for i, v in enumerate(value)]
        else:
            found.append((name, value))
    return found


def _notes(found: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.wanted.note for e in found if e.wanted.note))


# ---------------------------------------------------------------- outside the trial


def judge_here(op, function: Callable, case: Case, device: str = "cpu") -> Outcome:
    """A kernel in Python on one case, in this process."""
    wanted = evidence(op, case, "forward").wanted
    values = moved(wanted.inputs(), device)
    args, kwargs = op.definition.split(list(values.values()))
    with torch.no_grad():
        out = function(*args, **kwargs)
    if op.schema.saves and isinstance(out, (tuple, list)):
        count = len(op.schema.outputs)
        out = out[0] if count == 1 else tuple(out[:count])
    return agree.judge(moved(leaves(op.schema, values, out), "cpu"), wanted)


def call_in_worker(op, version: Version, args: tuple, kwargs: dict, *, limit_s: float | None = None) -> object:
    """Call a version that is not installed, in the worker: outputs come back, mutated arguments are written here.

    Raises TrialError when it crashes, hangs or writes where it may not.
    """
    kernel: Kernel = version.kernel
    if version.slot != "forward":
        raise SchemaError(f"v{version.number} is a backward; call forward versions, or restore it")
    schema = op.schema
    given = schema.bind(args, kwargs)
    kernel.build([kernel.dtypes_of(given)])
    if not kernel.trial_device:
        raise ToolchainError(f"v{version.number} of {op.qualname} cannot be run: {kernel.unrunnable}")
    values = moved(given, "cpu")
    ordered, keywords = op.definition.split(list(values.values()))
    ordered = [v.detach() if isinstance(v, torch.Tensor) else v for v in ordered]
    step = Step(
        kernel.step_op, tuple(ordered), keywords, case="your call", outputs=(*schema.outputs, *schema.saves),
        layout=layout_of(op, values), allocates=tuple(a.name for a in kernel.declaration.allocations),
    )  # fmt: skip
    answer = worker_of(kernel).run(Job((step,), (kernel.launch(),), schemas_of(schema, (kernel,))), limit_s or LIMIT_S)
    if answer.printed:
        print(answer.printed, end="")
    result = placed((kernel,), answer.results[0])
    if not result.ok:
        kind = "mutation" if result.status == "process" else result.status if result.status in FAULTS else "crash"
        if result.status == "error":
            raise SchemaError(result.detail)
        raise TrialError(f"v{version.number} of {op.qualname}: {result.detail}", kind=kind, case="your call")
    for name, changed in result.mutated.items():
        given[name].copy_(changed)
    home = next((t.device for t in flat(list(given.values()))), "cpu")
    found = list(moved(dict(enumerate(result.outputs[: len(schema.outputs)])), home).values())
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def worker_of(kernel: Kernel) -> Worker | GpuWorker:
    """The process that tries it: that of the CPU, or the one with a GPU."""
    if kernel.trial_device != "cuda":
        return worker()
    from ..trial.gpu_client import gpu_worker

    return gpu_worker()


def layout_of(op, values: Mapping[str, object]) -> tuple[Meta, ...] | None:
    if op.reference is None:
        return None
    metadata = registration.output_metadata(op.definition, list(values.values()))
    return tuple(Meta(dtype, size, stride) for size, stride, dtype in metadata)
