"""A kernel on many inputs at once: what `check(level="full")` asks of the trial.

What the inputs should give is computed here, one after the other, while the kernel runs on earlier ones in the
worker. An input that crashes it is told of alone; those after it are run again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from ..case import Case
from ..check.expect import Expected, expected
from ..check.full import apart, doubt
from ..check.full.finding import Finding, vary
from ..check.gradients import expected_gradients
from ..errors import BuildError, SchemaError
from ..inputs import tensors_in
from ..tiers import Kernel
from ..trial import Job, Parcel
from ..trial.protocol import Result
from ..version import Version
from . import explained, outcomes
from .evidence import Evidence, evidence, forget
from .partners import dtypes_for, partners, schemas_of, worker_of
from .steps import steps_of
from .tryout_pool import LIMIT_S, Patience, Pool, Runs, until_all_ran
from .tryout_python import PythonTries, made_up, said

GUARDED_TIERS = ("raw", "host", "triton")  # their launchers try a new dtype before they answer its first call


@dataclass(frozen=True)
class Asked:
    """One input, what it should give, and why the kernel or the reference says no before anything is run."""

    case: Case
    evidence: Evidence | None = None
    refused: str = ""  # what the reference raised
    no_form: str = ""  # why the kernel has none
    dies: str = ""  # how the reference ends the process that it runs in


class KernelTries:
    """The kernel of a version, tried on any inputs in workers."""

    def __init__(self, op, version: Version, pool: Pool | None = None) -> None:
        self.op, self.kernel, self.slot, self.device = op, version.kernel, version.slot, version.device
        self._given_pool = pool
        self.patience = Patience()
        self._added: list[dict] = []  # dtypes that were built for this alone
        self._forms: dict[tuple, str] = {}  # by dtypes: why there is no form for them, "" where there is one

    @property
    def unrunnable(self) -> str:
        if not self.kernel.trial_device:
            return self.kernel.unrunnable or "it cannot be run here"
        installed = getattr(self.op.slots.get((self.slot, "cpu")), "kernel", None)
        if self.device != "cpu" and self.sequential and getattr(installed, "interpreted", False):
            return f"{self.kernel.unrunnable}; the interpreter runs the same cell on the CPU"
        return ""

    @property
    def sequential(self) -> bool:
        return self.kernel.interpreted

    @property
    def tries_new_dtypes(self) -> bool:
        return self.kernel.tier in GUARDED_TIERS

    @cached_property
    def pool(self) -> Pool:
        more = 0 if self.kernel.trial_device == "cuda" else max(0, min((os.cpu_count() or 1) // 2 - 1, 3))
        return self._given_pool or Pool(lambda: worker_of(self.kernel), more)

    def submit(self, cases: Sequence[Case], *, repeats: int = 1, spread: bool = False) -> _Running:
        if self.patience.left < 0:
            self.patience = Patience(2)
        dying = apart.dying(lambda c: self._evidence(c, spread), made_up(self.op, cases))
        asked = [self._ask(c, spread, dying.get(c, "")) for c in cases]
        self._build([a for a in asked if a.evidence is not None and not a.no_form])
        asked = [self._with_form(a) for a in asked]
        ready = [a.evidence for a in asked if a.evidence is not None and not a.no_form]
        forward, backward = partners(self.op, self.kernel)
        kernels = tuple(k for k in (forward, backward) if k is not None)
        libraries = tuple(k.launch() for k in kernels) if ready else ()
        schemas = schemas_of(self.op.schema, kernels)

        def run(worker: Runs) -> list[list[Result]]:
            return until_all_ran(
                worker, lambda e: self._job(e, forward, libraries, schemas), ready, repeats, self.patience
            )

        pending = self.pool.submit(run) if ready else None
        self._forget(cases)
        return _Running(self, asked, pending, spread)

    def release(self) -> None:
        for dtypes in self._added:  # a form that nobody asked for is none
            self.kernel.forget(dtypes)
            self._forms.pop(tuple(dtypes.items()), None)
        self._added.clear()

    def close(self) -> None:
        self.release()
        if self._given_pool is None and "pool" in vars(self):
            self.pool.close()

    # ------------------------------------------------------------ before the run

    def _evidence(self, case: Case, spread: bool) -> Evidence:
        return evidence(self.op, case, self.slot, self.kernel, spread=spread)

    def _ask(self, case: Case, spread: bool, dies: str) -> Asked:
        if dies:
            return Asked(case, dies=dies)
        try:
            found = self._evidence(case, spread)
        except Exception as error:
            if self.slot == "backward":
                return Asked(case, refused=said(error))
            return Asked(case, self._bare(case), refused=said(error))
        return Asked(case, found)

    def _bare(self, case: Case) -> Evidence | None:
        """The input alone, where the reference has no answer."""
        wanted = Expected(case, self.op.schema, skipped="the reference refuses it")
        values = wanted.inputs()
        tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
        lists = {f"{n}[{i}]": v for n, vs in values.items() if isinstance(vs, list) for i, v in enumerate(vs)}
        try:
            return Evidence(case, wanted, Parcel.of({**tensors, **lists}), values)
        except TypeError:
            return None

    def _build(self, asked: Sequence[Asked]) -> None:
        """Every form that these ask for; what does not build is told of one by one, afterwards."""
        for a in asked:
            assert a.evidence is not None
            wanted = dtypes_for(self.op, self.kernel, a.evidence)
            key = tuple(wanted.items())
            if key in self._forms:
                continue
            try:
                (refused,) = self.kernel.build([wanted])
                self._forms[key] = refused.message if refused is not None else ""
                if refused is None and not self._is_of_a_case(wanted):
                    self._added.append(wanted)
                self._build_other(a)
            except BuildError as error:
                self._forms[key] = f"it does not compile: {error.message.splitlines()[0]}"
            except SchemaError as error:
                self._forms[key] = error.message

    def _build_other(self, a: Asked) -> None:
        forward, backward = partners(self.op, self.kernel)
        other = forward if self.slot == "backward" else backward
        if other is not None and a.evidence is not None and not a.refused:
            e = evidence(self.op, a.case, other.slot, other)
            other.build([dtypes_for(self.op, other, e)])

    @cached_property
    def _of_cases(self) -> list[dict]:
        return [
            {n: getattr(v, "dtype", None) for n, v in c.bound(self.op.schema).items()}
            for c in self.op.case_list(bench=True)
        ]

    def _is_of_a_case(self, wanted: dict) -> bool:
        return any(all(w is None or c.get(n, w) in (w, None) for n, w in wanted.items()) for c in self._of_cases)

    def _with_form(self, a: Asked) -> Asked:
        if a.evidence is None:
            return a
        return replace(a, no_form=self._forms.get(tuple(dtypes_for(self.op, self.kernel, a.evidence).items()), ""))

    def _forget(self, cases: Sequence[Case]) -> None:
        """The answers to inputs of a check are asked for once."""
        forget(self.op, made_up(self.op, cases))

    # ------------------------------------------------------------ the run

    def _job(self, found: Sequence[Evidence], forward: Kernel | None, libraries: tuple, schemas: tuple) -> tuple:
        """The job, and for each evidence the number of the step that is its own."""
        steps, judged = steps_of(self.op, self.kernel, found, forward if self.slot == "backward" else None)
        own = [i for i, (_, e) in enumerate(judged) if e is not None]
        return Job(tuple(steps), libraries, schemas), own


class _Running:
    """Inputs on their way; `result` judges, in the thread that asks."""

    def __init__(self, tries: KernelTries, asked: list[Asked], pending: Future | None, spread: bool) -> None:
        self.op, self.slot, self.kernel = tries.op, tries.slot, tries.kernel
        self.asked, self.pending, self.spread = asked, pending, spread

    def done(self) -> bool:
        return self.pending is None or self.pending.done()

    def result(self) -> list[Finding]:
        ran = iter(self.pending.result() if self.pending is not None else ())
        return [self._finding(a, next(ran) if a.evidence is not None and not a.no_form else None) for a in self.asked]

    def _finding(self, a: Asked, results: list[Result] | None) -> Finding:
        if a.no_form or a.dies:
            return Finding(a.case, "no form" if a.no_form else "dies", a.no_form or a.dies)
        if results == []:
            return Finding(a.case, "not run", "it has crashed so often that it was not tried on more")
        if results is None or a.evidence is None:
            return Finding(a.case, "both refuse" if a.refused else "skip", a.refused)
        if a.refused:
            return _beyond_the_reference(a, results[0])
        others = [r for r in results[1:] if not _alike(r, results[0])]  # the same bits get the same verdict
        judged = [self._judged(a.evidence, r) for r in (results[0], *others)]
        worst = next((f for f in judged if f.wrong), judged[0])
        seconds = min(r.seconds for r in results)
        return replace(worst, differing=len(others), seconds=seconds, varies=vary(judged))

    def _judged(self, e: Evidence, r: Result) -> Finding:
        outcome = outcomes.outcome(self.op, self.slot, e, r, LIMIT_S)
        if outcome.mismatch is not None and doubt.doubtful(outcome.share) and self.op.reference is not None:
            outcome = outcomes.outcome(self.op, self.slot, self._again(e), r, LIMIT_S)
        outcome = explained.outcome(self.kernel, outcome)
        status, detail = outcome.status, outcome.detail
        if status == "error":
            status = "refused" if detail.endswith(")") and " is not met" in detail else "raises"
        elif status == "mismatch" and "shares memory with" in detail:
            status = "aliasing"
        elif status == "agree" and e.wanted.compare is None and (count := self._never_written(r)):
            status = "unwritten"
            detail = (
                f"{count} elements of an output are never written; where NaN is wanted, what was there passes for it"
            )
        return Finding(e.case, status, detail, outcome.share, outcome.mismatch)

    def _never_written(self, r: Result) -> int:
        """Elements of the first output that has such. What is only saved is judged by what backward makes of it."""
        if self.slot == "backward":
            return 0
        returned = r.outputs[: len(self.op.schema.outputs)]
        flat = sum(len(v) if isinstance(v, (list, tuple)) else 1 for v in returned)
        return next((n for n in r.unwritten[:flat] if n), 0)

    def _again(self, e: Evidence) -> Evidence:
        """The evidence with a second opinion on how exact the reference is."""
        op = self.op
        forward = partial(expected, op.reference, op.schema, compare=op.compare_function)
        backward = partial(expected_gradients, op.reference, op.schema, spread=self.spread)
        return replace(e, wanted=doubt.second_opinion(e.wanted, forward if self.slot == "forward" else backward))


def _beyond_the_reference(a: Asked, r: Result) -> Finding:
    if r.status == "error":
        return Finding(a.case, "both refuse", a.refused)
    said = "the kernel takes it" if r.ok else f"the kernel {'does not end' if r.status == 'hang' else r.detail}"
    return Finding(a.case, "accepts", f"the reference refuses it ({a.refused}), {said}")


def _alike(r: Result, first: Result) -> bool:
    """Did two runs do the same, to the last bit?"""
    if (r.status, r.detail, r.unwritten, r.aliases) != (first.status, first.detail, first.unwritten, first.aliases):
        return False
    these, those = ([*tensors_in(list(x.outputs)), *x.mutated.values()] for x in (r, first))
    return len(these) == len(those) and all(_same_bits(x, y) for x, y in zip(these, those, strict=True))


def _same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (x, y)))


def tries_of(op, slot: str = "forward") -> list[KernelTries | PythonTries]:
    """What fills a slot of an op, device by device, ready to be tried."""
    found: list[KernelTries | PythonTries] = []
    for (filled, _), version in sorted(op.slots.items()):
        if filled != slot:
            continue
        if isinstance(version.kernel, Kernel):
            found.append(KernelTries(op, version))
        elif hasattr(version.kernel, "function"):
            found.append(PythonTries(op, version))
    return found


__all__ = ["KernelTries", "Pool", "PythonTries", "tries_of"]
