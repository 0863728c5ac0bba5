"""The trial of a kernel: its op's cases as a job for the worker, and the verdict on what came back.

Only native code runs in the worker. What a case should give is in `evidence`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from .. import gpu
from ..case import Case
from ..check import agree
from ..check.expect import leaves
from ..inputs import moved
from ..reports.report import Outcome, Trial
from ..tiers import Kernel
from ..trial import Job, Step
from . import configurations, explained, foreseen, pulled, tried_here, verdicts
from .evidence import Evidence, answered, evidence, evidences, learn_layout
from .outcomes import outcome, placed
from .partners import dtypes_for, partners, schemas_of, worker_of
from .steps import steps_of, with_backward

LIMIT_S = 10.0
RAISES = "a call like this case raises"


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
    forward, backward = partners(op, kernel)
    if forward is not None and forward.trial_device != kernel.trial_device:
        return Trial(tuple(Outcome(c.name, c.dtype_name, "skip", detail="its forward was not run") for c in cases))
    found = evidences(op, kernel, cases)
    learn_layout(op, kernel, cases)
    if kernel.here:
        results = [(e, tried_here.result(op, kernel, forward, e)) for e in found]
        outcomes = tuple(outcome(op, kernel.slot, e, r, limit_s) for e, r in results)
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
    tried = [((slot, e), r, outcome(op, slot, e, r, limit_s)) for slot, e, r in pairs]
    outcomes, left_out = configurations.folded(tried)
    trial = Trial(outcomes, time.perf_counter() - started, answer.printed, (*_notes(found), *left_out))
    trial = explained.trial(kernel, trial)
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
    forward, backward = partners(op, kernel)
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
    refused = [(c, f"{r.message}; {RAISES}") for c, r in told if r is not None]
    refusals = [Outcome(c.name, c.dtype_name, "skip", detail=said) for c, said in refused]
    if cases and not tried:
        raise next(r for r in answers.values() if r is not None)
    forward, backward = partners(op, kernel)
    other = backward if kernel.slot == "forward" else forward
    if other is not None:
        for c in tried:
            other.build([dtypes_for(op, other, evidence(op, c, other.slot, other))])
    return tried, refusals


def _notes(found: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.wanted.note for e in found if e.wanted.note))


def judge_here(op, function: Callable, case: Case, device: str = "cpu") -> Outcome:
    """A kernel in Python on one case, in this process."""
    wanted = answered(op, case, "forward").wanted
    values = moved(wanted.inputs(), device)
    args, kwargs = op.definition.split(list(values.values()))
    with torch.no_grad():
        out = function(*args, **kwargs)
    if op.schema.saves and isinstance(out, (tuple, list)):
        count = len(op.schema.outputs)
        out = out[0] if count == 1 else tuple(out[:count])
    return agree.judge(moved(leaves(op.schema, values, out), "cpu"), wanted)
