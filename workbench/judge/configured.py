"""A version on one case, for the tuner: its arguments, the trial of a configuration, the call that is timed."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from .. import which
from ..case import Case
from ..check import agree
from ..check.expect import Expected, leaves
from ..inputs import fresh, moved, tensors_in
from ..measure.clock import Call, Clock, CpuClock, GpuClock
from ..measure.prepare import restoring
from ..register import pullback
from ..reports.tuning import NOT_REACHED
from ..tiers.raw import RawKernel
from ..trial import Job, Made
from ..tune.raw import RawSpace
from ..tune.space import Candidate, Space
from ..version import Version
from . import examine, outcomes, tryout_pool
from .evidence import Evidence, evidence
from .partners import schemas_of, worker_of
from .steps import steps_of
from .tryout_pool import Patience, until_all_ran

LEAST_S = 1.0  # of a trial, when the budget is at its end
ALIKE = 3  # results that further ones are held against, bit by bit


@dataclass
class Tried:
    """A version on one case: its arguments, trials of its configurations, and the call that is timed."""

    op: Any
    version: Version
    case: Case
    given: Evidence | None = None  # where another process has worked it out
    agreed: list[Any] = field(default_factory=list)  # the last results that did

    @property
    def kernel(self) -> Any:
        return self.version.kernel

    @cached_property
    def evidence(self) -> Evidence:
        """Inputs and what they should give; where the reference takes too much, what the installed version gives."""
        if self.given is not None:
            return self.given
        found = evidence(self.op, self.case, self.version.slot, self.kernel)
        if found.wanted.skipped and self.version.slot == "forward" and not self.kernel.unrunnable:
            found = replace(found, wanted=self._of_installed(found.wanted))
        return found

    def _of_installed(self, wanted: Expected) -> Expected:
        op, inputs = self.op, moved(wanted.inputs(), self.version.device)
        args, keywords = op.definition.split(list(inputs.values()))
        with torch.no_grad():
            results = leaves(op.schema, inputs, op.torch_op(*args, **keywords))
        return agree.expected_of_version(op.schema, self.case, moved(results, "cpu"))

    @cached_property
    def arguments(self) -> dict[str, object]:
        """Those of the native op by name; of tensors only the form is right, where no more is needed."""
        if self.version.slot == "forward":
            return {name: _sketch(said, self.case, name, self.op) for name, said in which.form_of(self.op, self.case)}
        found = dict(self.evidence.values)
        if self.kernel.uses_saved:
            forward = self.op.runs("forward", self.version.device).kernel
            made = forward.fakes({a.name: found[a.name] for a in self.op.schema.arguments})
            found |= {n: made[n] for n in self.op.schema.saves}
        return found

    def space(self, configs: object = ()) -> Space:
        if isinstance(self.kernel, RawKernel):
            return RawSpace(self.kernel, self.arguments)
        from ..tune.triton import TritonSpace

        return TritonSpace(self.kernel, self.arguments, configs)

    # ------------------------------------------------------------ trial

    def check(
        self, space: Space, some: Sequence[Candidate], left_s: Callable[[], float] = lambda: math.inf
    ) -> Iterator[tuple[str, str]]:
        """Each of them on this case in the worker, outputs poisoned: "agree", or what went wrong, one after the other.

        What does not end within `left_s()`, where that is less than the usual limit, was not reached.
        """
        alone = isinstance(self.kernel, RawKernel)
        for group in [[one] for one in some] if alone else [some]:
            yield from self._checked(space, group, left_s())

    def _checked(self, space: Space, some: Sequence[Candidate], left_s: float) -> list[tuple[str, str]]:
        op, e = self.op, self.evidence
        loaded: Any = space.tried_as(some[0])[0]
        forward = op.runs("forward", self.version.device).kernel if self.kernel.uses_saved else None
        kernels = [k for k in (forward, loaded) if k is not None]
        libraries, schemas = tuple(k.launch() for k in kernels), schemas_of(op.schema, kernels)

        def job(turns: Sequence[Any]) -> tuple[Job, list[int]]:
            steps: list[Any] = []
            own = []
            for turn in turns:
                made, _ = steps_of(op, loaded, [e], forward)
                steps += [_behind(s, len(steps), turn) for s in made]
                own.append(len(steps) - 1)
            return Job(tuple(steps), libraries, schemas), own

        turns = [space.tried_as(one)[1] for one in some]
        ran = until_all_ran(worker_of(loaded), job, turns, 1, Patience(len(turns)), max(left_s, LEAST_S))
        said = [self._verdict(r[0]) if r else ("crash", "not tried: too many before it crashed") for r in ran]
        if left_s < tryout_pool.LIMIT_S:
            said = [(NOT_REACHED, "the budget ended while it was tried") if s[0] == "hang" else s for s in said]
        return said

    def _verdict(self, result: Any) -> tuple[str, str]:
        if result.status == "skip":
            return "resources", result.detail
        if any(_same(result, former) for former in self.agreed):
            return "agree", ""
        slot, limit_s = self.version.slot, examine.LIMIT_S
        outcome = outcomes.outcome(self.op, slot, self._beside, result, limit_s)
        if outcome.status not in ("agree", "skip") and self._beside is not self.evidence:
            outcome = outcomes.outcome(self.op, slot, self.evidence, result, limit_s)  # its words come from the CPU
        if outcome.status == "skip":
            return "agree", outcome.detail
        if outcome.status == "agree":
            self.agreed = [result, *self.agreed[: ALIKE - 1]]
        return outcome.status, outcome.detail

    @cached_property
    def _beside(self) -> Evidence:
        """The evidence with its answers on the GPU: large ones are compared there."""
        e = self.evidence
        if self.kernel.trial_device != "cuda" or e.wanted.compare is not None:
            return e
        answers = tuple(
            replace(o, value=o.value.cuda(), true=o.true.cuda(), own=None if o.own is None else o.own.cuda())
            for o in e.wanted.outputs
        )
        return replace(e, wanted=replace(e.wanted, outputs=answers))

    # ------------------------------------------------------------ time

    def clock(self) -> Clock:
        if self.version.device != "cuda":
            return CpuClock()
        from ..measure.device import Cuda

        return GpuClock(Cuda())

    def call(self) -> Call:
        """One call of the op on inputs of its own, which are as they were before each sample."""
        op, device, before = self.op, self.version.device, None
        with torch.no_grad():
            if self.version.slot == "forward":
                values = moved(fresh(self._inputs()), device)
                args, keywords = op.definition.split(list(values.values()))
                run = op.forward_op
                before = restoring([t for n in op.schema.mutated for t in tensors_in(values[n])])
            else:
                args, keywords = self._backward_arguments(), {}
                name = f"{self.kernel.native_schema.name}_backward"
                run = getattr(getattr(torch.ops, op.schema.namespace), name).default

        def call() -> object:
            with torch.no_grad():
                return run(*args, **keywords)

        return Call("", call, before)

    def _inputs(self) -> Mapping[str, object]:
        return {a.name: self.evidence.values[a.name] for a in self.op.schema.arguments}

    def _backward_arguments(self) -> list[object]:
        op, device, values = self.op, self.version.device, moved(fresh(dict(self.evidence.values)), self.version.device)
        saves = list(op.schema.saves)
        kept = [a.name for a in self.kernel.declaration.arguments if a.name not in saves]
        saved: list[object] = [pullback.absent(device) for _ in saves]
        if self.kernel.uses_saved:
            args, keywords = op.definition.split([values[a.name] for a in op.schema.arguments])
            results = op.forward_op(*args, **keywords)
            saved = list(results)[len(op.schema.outputs) :]
        return [*(values.get(n) for n in kept), *saved]


def _same(result: Any, former: Any) -> bool:
    """Did two configurations leave the same behind, to the last bit? Then one verdict serves both."""
    if (result.status, result.unwritten, result.aliases) != (former.status, former.unwritten, former.aliases):
        return False
    these, those = (tensors_in([list(r.outputs), dict(r.mutated)]) for r in (result, former))
    return len(these) == len(those) and all(
        (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
        and (x.data_ptr() == y.data_ptr() or torch.equal(_bytes(x), _bytes(y)))  # sent once, or the same
        for x, y in zip(these, those, strict=True)
    )


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else t.reshape(-1)


def _behind(step: Any, first: int, turn: Any) -> Any:
    """A step of steps that are numbered from 0, behind `first` others."""
    moved_ = tuple(replace(a, step=a.step + first) if isinstance(a, Made) else a for a in step.args)
    return replace(step, args=moved_, turn=turn)


def _sketch(said: Any, case: Case, name: str, op) -> object:
    """A value that looks like it: an empty tensor of that dtype, size and strides, or the case's own number."""
    if isinstance(said, tuple) and len(said) == 3 and isinstance(said[0], str) and isinstance(said[1], tuple):
        return torch.empty_strided(said[1], said[2], dtype=getattr(torch, said[0]))
    if isinstance(said, tuple):
        return [_sketch(part, case, name, op) for part in said]
    try:
        return ast.literal_eval(said)
    except (ValueError, SyntaxError):  # a dtype, a device, infinity
        return case.bound(op.schema)[name]
