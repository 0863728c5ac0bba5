"""A version on one case, for the tuner: its arguments, the trial of a configuration, the call that is timed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from .. import which
from ..case import Case
from ..check import agree
from ..check.expect import Expected, leaves
from ..inputs import fresh, moved, tensors_in
from ..measure.clock import Clock, CpuClock, GpuClock
from ..register import pullback
from ..tiers.raw import RawKernel
from ..trial import Job, Made
from ..tune.raw import RawSpace
from ..tune.space import Candidate, Space
from ..version import Version
from . import examine, outcomes
from .evidence import Evidence, evidence
from .partners import schemas_of, worker_of
from .steps import steps_of
from .tryout_pool import Patience, until_all_ran

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

    def check(self, space: Space, some: Sequence[Candidate]) -> list[tuple[str, str]]:
        """Each of them on this case in the worker, outputs poisoned: "agree", or what went wrong."""
        if isinstance(self.kernel, RawKernel):
            return [self._checked(space, [one])[0] for one in some]
        return self._checked(space, some)

    def _checked(self, space: Space, some: Sequence[Candidate]) -> list[tuple[str, str]]:
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
        ran = until_all_ran(worker_of(loaded), job, turns, 1, Patience(len(turns)))
        return [self._verdict(r[0]) if r else ("crash", "not tried: too many before it crashed") for r in ran]

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

    def call(self) -> Callable[[], object]:
        """One call of the op on inputs of its own; a mutating op goes on changing these."""
        op, device = self.op, self.version.device
        with torch.no_grad():
            if self.version.slot == "forward":
                values = moved(fresh(self._inputs()), device)
                args, keywords = op.definition.split(list(values.values()))
                run = op.forward_op
            else:
                args, keywords = self._backward_arguments(), {}
                name = f"{self.kernel.native_schema.name}_backward"
                run = getattr(getattr(torch.ops, op.schema.namespace), name).default

        def call() -> object:
            with torch.no_grad():
                return run(*args, **keywords)

        return call

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
