"""A kernel on many inputs at once: what `check(level="full")` asks of the trial.

What the inputs should give is computed here, one after the other, while the kernel runs on earlier ones in the
worker. An input that crashes it is told of alone; those after it are run again.
"""

from __future__ import annotations

import os
import queue
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from . import examine
from .case import Case
from .check import agree
from .check.expect import Expected, as_tensor, expected, leaves
from .check.full import doubt
from .check.full.finding import Finding
from .check.gradients import expected_gradients
from .errors import BuildError, SchemaError, WorkbenchError
from .evidence import Evidence, evidence
from .inputs import fresh, tensors_in
from .steps import steps_of
from .tiers import Kernel
from .trial import Job, Parcel, Worker
from .trial.protocol import Result
from .version import Version

LIMIT_S, STEP_S = 10.0, 1.0  # for the first input of a job, and for each one more
GUARDED_TIERS = ("raw", "host")  # their launchers try a new dtype before they answer its first call


@dataclass(frozen=True)
class Asked:
    """One input, what it should give, and why the kernel or the reference says no before anything is run."""

    case: Case
    evidence: Evidence | None = None
    refused: str = ""  # what the reference raised
    no_form: str = ""  # why the kernel has none


class Pool:
    """Workers side by side: the one that runs already, and others where there are cores for them and work to do."""

    def __init__(self, first: Callable[[], Worker], more: int = 0) -> None:
        self._free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self._first, self._own = first, [Worker() for _ in range(more)]
        self._free.put(None)  # the one that runs already
        for worker in self._own:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(1 + more, thread_name_prefix="workbench-tryout")

    def submit(self, call: Callable[[Worker], list]) -> Future:
        def run() -> list:
            taken = self._free.get()
            try:
                return call(taken or self._first())
            finally:
                self._free.put(taken)

        return self._threads.submit(run)

    def close(self) -> None:
        """Let go of it; what still runs is ended with its process."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._own:
            worker.close()


class KernelTries:
    """The kernel of a version, tried on any inputs in workers."""

    def __init__(self, op, version: Version, pool: Pool | None = None) -> None:
        self.op, self.kernel, self.slot, self.device = op, version.kernel, version.slot, version.device
        self._given_pool = pool
        self._added: list[dict] = []  # dtypes that were built for this alone

    @property
    def unrunnable(self) -> str:
        return "" if self.kernel.trial_device else self.kernel.unrunnable or "it cannot be run here"

    @property
    def tries_new_dtypes(self) -> bool:
        return self.kernel.tier in GUARDED_TIERS

    @cached_property
    def pool(self) -> Pool:
        more = 0 if self.kernel.trial_device == "cuda" else max(0, min((os.cpu_count() or 1) // 2 - 1, 3))
        return self._given_pool or Pool(lambda: examine.worker_of(self.kernel), more)

    def submit(self, cases: Sequence[Case], *, repeats: int = 1, spread: bool = False) -> _Running:
        asked = [self._ask(c, spread) for c in cases]
        self._build([a for a in asked if a.evidence is not None and not a.no_form])
        asked = [self._with_form(a) for a in asked]
        ready = [a.evidence for a in asked if a.evidence is not None and not a.no_form]
        forward, backward = examine._pair(self.op, self.kernel)
        kernels = tuple(k for k in (forward, backward) if k is not None)
        libraries = tuple(k.launch() for k in kernels) if ready else ()
        schemas = examine._schemas(self.op.schema, kernels)

        def run(worker: Worker) -> list[list[Result]]:
            return _until_all_ran(worker, lambda e: self._job(e, forward, libraries, schemas), ready, repeats)

        pending = self.pool.submit(run) if ready else None
        self._forget(cases)
        return _Running(self.op, self.slot, asked, pending, spread)

    def close(self) -> None:
        for dtypes in self._added:  # a form that nobody asked for is none
            self.kernel.forget(dtypes)
        if self._given_pool is None and "pool" in vars(self):
            self.pool.close()

    # ------------------------------------------------------------ before the run

    def _ask(self, case: Case, spread: bool) -> Asked:
        try:
            found = evidence(self.op, case, self.slot, self.kernel, spread=spread)
        except Exception as error:
            if self.slot == "backward":
                return Asked(case, refused=_said(error))
            return Asked(case, self._bare(case), refused=_said(error))
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
            wanted = examine.dtypes_for(self.op, self.kernel, a.evidence)
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
        forward, backward = examine._pair(self.op, self.kernel)
        other = forward if self.slot == "backward" else backward
        if other is not None and a.evidence is not None and not a.refused:
            e = evidence(self.op, a.case, other.slot, other)
            other.build([examine.dtypes_for(self.op, other, e)])

    @cached_property
    def _forms(self) -> dict[tuple, str]:
        return {}

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
        return replace(a, no_form=self._forms.get(tuple(examine.dtypes_for(self.op, self.kernel, a.evidence).items()), ""))

    def _forget(self, cases: Sequence[Case]) -> None:
        """The answers to inputs of a check are asked for once."""
        mine = set(map(id, cases)) - set(map(id, self.op.case_list(bench=True)))
        for key in [k for k in self.op.evidence if id(k[0]) in mine]:
            del self.op.evidence[key]

    # ------------------------------------------------------------ the run

    def _job(self, found: Sequence[Evidence], forward: Kernel | None, libraries: tuple, schemas: tuple) -> tuple:
        """The job, and for each evidence the number of the step that is its own."""
        steps, judged = steps_of(self.op, self.kernel, found, forward if self.slot == "backward" else None)
        own = [i for i, (_, e) in enumerate(judged) if e is not None]
        return Job(tuple(steps), libraries, schemas), own


class _Running:
    """Inputs on their way; `result` judges, in the thread that asks."""

    def __init__(self, op, slot: str, asked: list[Asked], pending: Future | None, spread: bool) -> None:
        self.op, self.slot, self.asked, self.pending, self.spread = op, slot, asked, pending, spread

    def done(self) -> bool:
        return self.pending is None or self.pending.done()

    def result(self) -> list[Finding]:
        ran = iter(self.pending.result() if self.pending is not None else ())
        return [self._finding(a, next(ran) if a.evidence is not None and not a.no_form else None) for a in self.asked]

    def _finding(self, a: Asked, results: list[Result] | None) -> Finding:
        if a.no_form:
            return Finding(a.case, "no form", a.no_form)
        if results is None or a.evidence is None:
            return Finding(a.case, "both refuse" if a.refused else "skip", a.refused)
        if a.refused:
            return _beyond_the_reference(a, results[0])
        judged = [self._judged(a.evidence, r) for r in results]
        worst = next((f for f in judged if f.wrong), judged[0])
        first = _bits(results[0])
        differing = sum(_bits(r) != first for r in results[1:]) if len(results) > 1 else 0
        return replace(worst, differing=differing, seconds=results[0].seconds)

    def _judged(self, e: Evidence, r: Result) -> Finding:
        outcome = examine._outcome(self.op, self.slot, e, r, LIMIT_S)
        if outcome.mismatch is not None and doubt.doubtful(outcome.share) and self.op.reference is not None:
            outcome = examine._outcome(self.op, self.slot, self._again(e), r, LIMIT_S)
        status, detail = outcome.status, outcome.detail
        if status == "error":
            status = "refused" if detail.endswith(")") and " is not met" in detail else "raises"
        elif status == "mismatch" and "shares memory with" in detail:
            status = "aliasing"
        elif status == "agree" and any(r.unwritten) and e.wanted.compare is None and self.slot == "forward":
            status = "unwritten"
            count = next(n for n in r.unwritten if n)
            detail = f"{count} elements of an output are never written; where NaN is wanted, what was there passes for it"
        return Finding(e.case, status, detail, outcome.share, outcome.mismatch)


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


def _until_all_ran(
    worker: Worker, job_of: Callable[[Sequence[Evidence]], tuple], found: Sequence[Evidence], repeats: int
) -> list[list[Result]]:
    """The results of each piece of evidence, `repeats` a piece; what a crash kept from running is run again."""
    ran: list[list[Result]] = [[] for _ in found]
    todo = [i for i in range(len(found)) for _ in range(repeats)]
    while todo:
        job, own = job_of([found[i] for i in todo])
        answer = worker.run(job, LIMIT_S + STEP_S * len(todo))
        results = [answer.results[place] for place in own]
        reached = next((n for n, r in enumerate(results) if r.status == "skip" and r.detail == "not reached"), len(todo))
        if results[max(reached, 1) - 1].status == "hang" and reached > 1:
            reached -= 1  # the time may have been used up by those before it: it gets some of its own
        for i, r in zip(todo[:reached], results[:reached], strict=True):
            ran[i].append(r)
        todo = todo[max(reached, 1) :]
    return ran


def _bits(r: Result) -> tuple:
    everything = [*tensors_in(list(r.outputs)), *r.mutated.values()]
    return tuple(x.contiguous().view(torch.uint8).numpy().tobytes() if x.numel() and x.dim() else str(x) for x in everything)


class PythonTries:
    """A kernel in Python, tried in this process: it can be wrong, but not hurt."""

    slot, unrunnable, tries_new_dtypes = "forward", "", False

    def __init__(self, op, version: Version) -> None:
        self.op, self.kernel, self.device = op, version.kernel, version.device

    def submit(self, cases: Sequence[Case], *, repeats: int = 1, spread: bool = False) -> _Done:
        return _Done([self._try(c, repeats) for c in cases])

    def close(self) -> None:
        pass

    def _try(self, case: Case, repeats: int) -> Finding:
        refused, wanted = "", None
        try:
            wanted = evidence(self.op, case, "forward").wanted
        except Exception as error:
            refused = _said(error)
        finally:
            if not any(case is c for c in self.op.case_list(bench=True)):
                for key in [k for k in self.op.evidence if k[0] is case]:
                    del self.op.evidence[key]
        wanted = wanted or Expected(case, self.op.schema, skipped="the reference refuses it")
        runs = []
        for _ in range(repeats):
            try:
                runs.append(self._run(wanted))
            except Exception as error:
                status = "both refuse" if refused else "raises"
                return Finding(case, status, refused or _said(error))
        if refused:
            return Finding(case, "accepts", f"the reference refuses it ({refused}), the kernel takes it")
        first = runs[0][1]
        worst = next((f for f, _ in runs if f.wrong), runs[0][0])
        return replace(worst, differing=sum(bits != first for _, bits in runs[1:]))

    def _run(self, wanted: Expected) -> tuple[Finding, tuple]:
        op, schema, case = self.op, self.op.schema, wanted.case
        inputs = wanted.inputs()
        before = fresh(inputs)
        args, kwargs = op.definition.split(list(inputs.values()))
        with torch.no_grad(), _poison():
            out = self.kernel.function(*args, **kwargs)
        if schema.saves and isinstance(out, (tuple, list)):
            out = out[0] if len(schema.outputs) == 1 else tuple(out[: len(schema.outputs)])
        results = leaves(schema, inputs, out)
        bits = tuple(str(x.tolist()) if x.numel() < 4096 else x.double().sum().item() for x in results.values())
        for name, value in inputs.items():
            if name not in schema.mutated and not _same_bytes(value, before[name]):
                return Finding(case, "mutation", f"changes the argument {name}, which the schema does not let it"), bits
        owners = {s: n for n, v in inputs.items() for x in tensors_in(v) if (s := _storage(x)) is not None}
        for name, x in results.items():
            if name in schema.mutated or name.partition("[")[0] in schema.mutated:
                continue
            owner = owners.get(_storage(x))
            if owner is not None and x.numel():
                said = f"{name} shares memory with {owner}; an output must be a tensor of its own"
                return Finding(case, "aliasing", said), bits
            owners[_storage(x)] = name
        outcome = agree.judge({n: as_tensor(x) for n, x in results.items()}, wanted)
        return Finding(case, outcome.status, outcome.detail, outcome.share, outcome.mismatch), bits


class _Done:
    """Findings that are there already."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def done(self) -> bool:
        return True

    def result(self) -> list[Finding]:
        return self.findings


class _poison:  # noqa: N801  used like a function
    """New memory holds NaN, as it does in the worker, so that what is never written is seen."""

    def __enter__(self) -> None:
        self.quiet = warnings.catch_warnings()
        self.quiet.__enter__()
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        self.former = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: object) -> None:
        torch.use_deterministic_algorithms(self.former[0], warn_only=self.former[1])
        self.quiet.__exit__(None, None, None)


def _storage(x: object) -> int | None:
    return x.untyped_storage().data_ptr() or None if isinstance(x, torch.Tensor) and x.numel() else None


def _same_bytes(a: object, b: object) -> bool:
    pairs = zip(tensors_in(a), tensors_in(b), strict=True)
    return all(x.shape == y.shape and torch.equal(_raw(x), _raw(y)) for x, y in pairs)


def _raw(x: torch.Tensor) -> torch.Tensor:
    return x.detach().contiguous().reshape(-1).view(torch.uint8) if x.numel() else x.new_zeros(0, dtype=torch.uint8)


def _said(error: BaseException) -> str:
    """What an exception says, in one line."""
    lines = str(getattr(error, "message", "") or error).strip().splitlines()
    said = lines[0] if lines else ""
    return said if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {said}"


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