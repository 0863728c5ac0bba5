"""Contestants made ready for one case: their results held against the reference's first, then what the clock calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..case import Case
from ..check import agree
from ..check.expect import Expected, expected_of_version, leaves
from ..check.gradients import graph, pull
from ..check.remember import answer, gradient_answer
from ..check.sample import first_line
from ..inputs import fresh, tensors_in
from ..reports.measurement import Work
from . import work
from .clock import Call
from .contestants import REFERENCE, Contestant

NO_MEMORY = "does not fit in memory"


@dataclass(frozen=True)
class Ready:
    """One contestant on one case: what the clock calls, or why it is not timed."""

    contestant: Contestant
    call: Call | None = None
    status: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Prepared:
    """All contestants on one case and slot, the op first, with what a call has to do."""

    ready: tuple[Ready, ...]
    work: Work
    notes: tuple[str, ...] = ()


def prepare(op, contestants: Sequence[Contestant], case: Case, slot: str, device: str) -> Prepared:
    """Every contestant run once and judged as `op.check()` would; those that agree are ready to be timed."""
    return (_Backward if slot == "backward" else _Forward)(op, case, device).prepare(contestants)


class _Slot:
    """What the two slots share."""

    def __init__(self, op, case: Case, device: str) -> None:
        self.op, self.case, self.device = op, case, device
        self.notes: list[str] = []
        self.wanted: Expected | None = None

    def prepare(self, contestants: Sequence[Contestant]) -> Prepared:
        found: list[Ready] = []
        for c in contestants:
            if found and found[0].call is None:
                found.append(Ready(c, None, "skip", f"not timed: {contestants[0].name} was not"))
                continue
            found.append(self._one(c))
        return Prepared(tuple(found), self._work() if found[0].call else Work(), tuple(dict.fromkeys(self.notes)))

    def _one(self, contestant: Contestant) -> Ready:
        try:
            c = contestant.ready()
            with lent(c):
                detail = self._differs(c)
            if detail:
                return Ready(c, None, "differs", detail)
            return Ready(c, self._call(c))
        except (MemoryError, torch.OutOfMemoryError) as error:
            return Ready(contestant, None, "failed", f"{NO_MEMORY}: {first_line(error) or type(error).__name__}")
        except Exception as error:  # of a callable, a compiler or a kernel: the others are timed all the same
            said = first_line(error)
            if "can't allocate memory" in said or "out of memory" in said.lower():
                return Ready(contestant, None, "failed", f"{NO_MEMORY}: {said}")
            return Ready(contestant, None, "failed", f"{type(error).__name__}: {said}")

    def _differs(self, c: Contestant) -> str:
        raise NotImplementedError

    def _call(self, c: Contestant) -> Call:
        raise NotImplementedError

    def _work(self) -> Work:
        raise NotImplementedError


class _Forward(_Slot):
    def __init__(self, op, case: Case, device: str) -> None:
        super().__init__(op, case, device)
        self.named: Mapping[str, Any] = fresh(case.bound(op.schema), device=device)
        self.results: list[Tensor] = []
        self.outcomes = op.random and op.compare_function is None
        if self.outcomes:
            self.notes.append("results were not compared: the reference draws random numbers")
        elif op.reference is not None:
            self.wanted = answer(op.reference, op.schema, case, op.compare_function, device=device)
            if self.wanted.skipped:
                self.notes.append(f"{case.label}: compared with the op itself, for {self.wanted.skipped}")
                self.wanted = None

    def _differs(self, c: Contestant) -> str:
        schema = self.op.schema
        inputs = fresh(self.case.bound(schema), device=self.device)
        args, kwargs = self.op.definition.split(list(inputs.values()))
        with torch.no_grad():
            got = leaves(schema, inputs, c.function(*args, **kwargs))
        if c.own:
            self.results = [v.detach() for v in got.values()]
        if self.outcomes or (c.name == REFERENCE and self.wanted is not None):
            return ""
        if self.wanted is None:
            kept = {n: v.detach().clone() for n, v in got.items()}
            self.wanted = expected_of_version(schema, self.case, kept, self.device)
            return ""
        outcome = agree.judge(got, self.wanted if c.own else any_strides(self.wanted))
        return outcome.detail if outcome.status == "mismatch" else ""

    def _call(self, c: Contestant) -> Call:
        args, kwargs = self.op.definition.split(list(self.named.values()))
        function = c.function
        mutated = [t for n in self.op.schema.mutated for t in tensors_in(self.named[n])]
        return Call(c.name, lambda: function(*args, **kwargs), restoring(mutated), *_turns(c))

    def _work(self) -> Work:
        return work.of_forward(self.op.definition, self.case, self.named, self.results)


class _Backward(_Slot):
    def __init__(self, op, case: Case, device: str) -> None:
        super().__init__(op, case, device)
        self.wanted = gradient_answer(op.reference, op.schema, case, device=device)
        self.several = op.compare_function is not None
        if self.several:
            self.notes.append("gradients were not compared: several answers are right, as `compare` says")

    def _differs(self, c: Contestant) -> str:
        assert self.wanted is not None
        if self.several or self.wanted.skipped or c.name == REFERENCE:
            return ""
        outcome = agree.judge(pull(c.function, self.wanted), any_strides(self.wanted))
        return outcome.detail if outcome.status == "mismatch" else ""

    def _call(self, c: Contestant) -> Call:
        assert self.wanted is not None
        cotangents = self.wanted.cotangents
        results, moving = graph(c.function, self.wanted)
        outs, into, given = [results[n] for n in cotangents], list(moving.values()), list(cotangents.values())

        def run() -> object:
            return torch.autograd.grad(outs, into, given, retain_graph=True, allow_unused=True)

        return Call(c.name, run, None, *_turns(c))

    def _work(self) -> Work:
        assert self.wanted is not None
        gradients = {o.name: o.value for o in self.wanted.outputs}
        named = self.case.bound(self.op.schema)
        return work.of_backward(self.op.definition, named, gradients, self.wanted.cotangents)


def any_strides(wanted: Expected) -> Expected:
    """What a callable is held against: its values, whatever strides they come in."""
    return replace(wanted, outputs=tuple(replace(o, strides=None) for o in wanted.outputs))


def restoring(tensors: Sequence[Tensor]) -> Callable[[], object] | None:
    """What puts mutated arguments back as they were; all contestants then start from the same values."""
    kept = [(t, t.clone()) for t in tensors]

    def restore() -> None:
        with torch.no_grad():
            for live, saved in kept:
                live.copy_(saved)

    return restore if kept else None


@contextmanager
def lent(c: Contestant) -> Iterator[None]:
    """The version of a contestant in the op's slot for a while."""
    if c.lent is None:
        yield
        return
    try:
        c.lent.enter()
        yield
    finally:
        c.lent.leave()


def _turns(c: Contestant) -> tuple[Callable | None, Callable | None]:
    return (None, None) if c.lent is None else (c.lent.enter, c.lent.leave)
