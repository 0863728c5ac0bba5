"""`op.profile(case)`: real calls under torch's profiler, and what its figures say.

What runs under the profiler is in `profile_run`, how its trace is read in `profile_trace`, figures in
`profile_figures`, advice in `profile_advice`, the GPU's own counters in `profile_counters`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import which
from ..case import SEED, Case
from ..errors import WorkbenchError
from ..inputs import draw, fresh, tensors_in
from ..reports.measurement import Work
from ..reports.profiling import Advice, Counters, Phase, Profile, ProfileRow
from ..reports.report import Progress
from . import (
    ceilings,
    memory,
    profile_advice,
    profile_figures,
    profile_machine,
    profile_run,
    profile_trace,
    refusals,
    work,
)
from .profile_seen import Seen
from .profile_trace import PHASES

STEPS = 4


Tell = Callable[[Progress], None]
Counting = Callable[[Case, "Sequence[ProfileRow]"], "tuple[tuple[Counters, ...], tuple[str, ...]]"]


def profile(
    op,
    case: object = None,
    *,
    device: str | None = None,
    backward: bool = True,
    counters: Counting | None = None,
    tell: Tell = lambda _: None,
) -> Profile:
    """Profile what is installed for an op, on one of its cases: without a name that to be measured, else the largest.

    >>> profile(rmsnorm, "llama").phases[0].kernel_us
    41.2

    `device` is where the kernels are, a GPU first; `counters` asks a GPU's own. WorkbenchError where a profiler runs
    already, for a case that there is none of, for one that does not fit into memory, and where the figures would be of
    something else: of Triton's interpreter, or, unless `device` says so, of the reference of an op for a GPU.
    """
    begin = time.perf_counter()
    profile_run.refuse_a_second()
    device = _device(op, device)
    refusals.refuse(op, PHASES if backward and not _no_backward(op) else PHASES[:1], device, "profile")
    chosen = which.case(op, case, verb="profile")

    def at(step: int, what: str) -> None:
        tell(Progress(op.qualname, what, step, STEPS, time.perf_counter() - begin))

    at(0, f"making the inputs of {chosen.label}")
    with fitting(chosen, device):
        calls = Calls(op, chosen, device, backward)
        at(1, f"calls of {chosen.label}, no profiler")
        alone, count = profile_run.alone(calls, device)
        raw = profile_run.traced(
            calls, count, device, lambda i: at(2, f"calls of {chosen.label} under the profiler, {i} of {count}")
        )
    found = profile_trace.calls(profile_run.read(raw), native_names(op, device), profile_machine.computes)[
        1:
    ]  # the first one is slow
    if not found:
        raise WorkbenchError(f"torch's profiler saw no call of {op.qualname}; nothing was profiled")
    at(3, "what the figures say")
    report = _report(op, chosen, device, calls, found, alone)
    report = replace(report, trace=zlib.compress(raw, 6))
    if counters is not None:
        at(3, "the GPU's counters, in a process of its own")
        counted, notes = counters(chosen, report.kernels)
        report = replace(report, counters=counted, notes=(*report.notes, *notes))
    report = replace(report, advice=_advice(op, report, calls))
    return replace(report, seconds=time.perf_counter() - begin)


class Calls:
    """Calls of an op on the inputs of a case, always the same ones; a mutating op goes on mutating its own copies."""

    def __init__(self, op, case: Case, device: str, backward: bool) -> None:
        self.op, self.case, self.device = op, case, device
        schema = op.schema
        self.named = fresh(case.bound(schema), device=device)
        self.moving: list[Tensor] = []
        self.why_not = _no_backward(op) if backward else ""
        if backward and not self.why_not:
            for name, value in self.named.items():
                if name not in case.constant:
                    self.moving += [x.requires_grad_() for x in tensors_in(value) if x.is_floating_point()]
        self.args = tuple(self.named[a.name] for a in schema.positional)
        self.keywords = {a.name: self.named[a.name] for a in schema.keyword_only}
        with torch.set_grad_enabled(bool(self.moving)):
            results = tensors_in(_listed(op(*self.args, **self.keywords)))
        self.results = [r.detach() for r in results]
        self.cotangents = [
            draw(tuple(r.shape), r.dtype, None, None, SEED - i).to(r.device)
            for i, r in enumerate(r for r in results if r.requires_grad)
        ]
        if self.moving and not self.cotangents:
            self.why_not = "no output takes a gradient here"
        self.moving = self.moving if self.cotangents else []

    def __call__(self, mark: Callable[[str], AbstractContextManager[Any]]) -> None:
        with torch.set_grad_enabled(bool(self.moving)):
            with mark("forward"):
                results = self.op(*self.args, **self.keywords)
            if self.moving:
                moved = [r for r in tensors_in(_listed(results)) if r.requires_grad]
                with mark("backward"):  # its results are kept until after it: freeing them is not part of it
                    found = torch.autograd.grad(moved, self.moving, self.cotangents, allow_unused=True)
                del found

    def work(self) -> dict[str, Work]:
        """What each phase has to do at least."""
        definition = self.op.definition
        written = [x for n in self.op.schema.mutated for x in tensors_in(self.named[n])]
        found = {"forward": work.of_forward(definition, self.case, self.named, [*self.results, *written])}
        if self.moving:
            gradients = dict(enumerate(self.moving))  # as large as what they are of
            given = dict(enumerate(self.cotangents))
            found["backward"] = work.of_backward(definition, self.named, gradients, given)
        return found


def _no_backward(op) -> str:
    if op.schema.mutated:
        return "the op writes its arguments"
    return "" if op.differentiable else "the op is not differentiable"


def _listed(results: object) -> object:
    return results if isinstance(results, (list, tuple)) else [results]


def _device(op, wanted: str | None) -> str:
    from ..check.quick import device_of

    if wanted is None:
        found = device_of(op)
        refusals.refuse_waiting(op, found, "profile")
        return found
    kind = str(wanted).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise WorkbenchError(f"profile(device={wanted!r}): it is 'cpu' or 'cuda'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise WorkbenchError("profile(device='cuda'): there is no GPU here that torch can use")
    return kind


def native_names(op, device: str) -> frozenset[str]:
    """The names in a trace behind which native code of the op runs."""
    names: set[str] = set()
    for (slot, where), version in op.slots.items():
        if where == device and version.source is not None:
            suffixes = ("", "_forward") if slot == "forward" else ("_backward", "_partial_backward")
            names |= {f"{op.qualname}{s}" for s in suffixes}
            if slot == "backward" and op.backward_op is not None:  # of a library's op it has a name of its own
                names.add(op.backward_op.name())
    return frozenset(names)


@contextmanager
def fitting(case: Case, device: str) -> Iterator[None]:
    """A case that does not fit into memory is a WorkbenchError, before its tensors are made if it can be."""
    try:
        memory.check(memory.needs(case), device)
        yield
    except memory.NoRoomError as error:
        raise WorkbenchError(f"case {case.label!r} {error}. Profile a smaller case") from None
    except (MemoryError, RuntimeError) as error:
        said = str(error)
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and "allocate memory" not in said:
            raise
        first = said.strip().splitlines()[0] if said.strip() else "out of memory"
        raise WorkbenchError(f"case {case.label!r} does not fit in memory: {first}. Profile a smaller case") from None


# ---------------------------------------------------------------- the report


def _report(op, case: Case, device: str, calls: Calls, found: list, alone: Mapping) -> Profile:
    cost = profile_run.event_cost_us()
    phases = tuple(
        profile_figures.phase(
            name, found, device, runs=_runs(op, name, device), event_cost_us=cost, alone=alone.get(name), work=least
        )
        for name, least in calls.work().items()
        if any(name in c.marks for c in found)
    )
    one = profile_figures.median(found)
    notes = [f"backward not profiled: {calls.why_not}"] if calls.why_not else []
    copy = ceilings.copy_bandwidth(device)
    if copy is not None and copy.busy:
        notes.append("the copy bandwidth was measured while other work shared the cores: shares of it are too large")
    if device == "cuda" and not any(p.launches for p in phases):
        notes.append("no kernel was seen on the GPU: another tool (nsys, ncu) may hold its profiling interface")
    return Profile(
        op=op.qualname,
        case=case.label,
        device=device,
        device_name=ceilings.machine(device),
        calls=len(found),
        phases=phases,
        kernels=profile_figures.kernels(found, device, profile_machine.arch(device)),
        ops=profile_figures.ops(found),
        timeline=profile_figures.timeline(one, device),
        memory=profile_figures.memory(one, device),
        notes=tuple(notes),
        copy_gb_per_s=profile_machine.copy_gb_per_s(device),
        threads=torch.get_num_threads(),
    )


def _runs(op, phase: str, device: str) -> str:
    version = op.runs(phase, device)
    if version.number:
        return f"v{version.number} {version.how}"
    if phase == "forward":
        return "reference"
    if getattr(op.registration, "native_gradient", ""):
        return "the library's own"
    return "@op.backward" if op.definition.backward is not None else "reference's vjp"


def _advice(op, report: Profile, calls: Calls) -> tuple[Advice, ...]:
    """The sentences on each phase; what is true of the machine is said once."""
    told = [a for p in report.phases for a in profile_advice.advice(_seen(op, report, p, calls))]
    machine = [a for a in told if a.rule == "busy machine"]
    return tuple(a for a in told if a not in machine[1:])


def _seen(op, report: Profile, phase: Phase, calls: Calls) -> Seen:
    kernels = tuple(k for k in report.kernels if k.phase == phase.name)
    counters = tuple(c for c in report.counters if c.phase == phase.name)
    small = any(x.is_floating_point() and x.element_size() <= 2 for x in tensors_in(calls.named))
    return Seen(
        phase,
        kernels,
        counters,
        report.device,
        report.copy_gb_per_s,
        report.threads,
        profile_machine.multiprocessors(report.device),
        small,
        profile_machine.tensor_cores(op, report.device, phase.name, kernels, counters),
        op.runs(phase.name, report.device).source is not None,
    )
