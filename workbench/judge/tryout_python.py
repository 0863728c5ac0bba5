"""A kernel in Python on many inputs: tried in this process, where it can be wrong, but not hurt."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from .. import gpu
from ..case import Case
from ..check import agree
from ..check.expect import Expected, as_tensor, leaves
from ..check.full import apart
from ..check.full.finding import Finding
from ..errors import WorkbenchError
from ..inputs import fresh, moved, tensors_in
from ..version import Version
from .evidence import evidence, forget


class PythonTries:
    """A kernel in Python, tried in this process: it can be wrong, but not hurt."""

    slot, tries_new_dtypes, sequential = "forward", False, False

    def __init__(self, op, version: Version) -> None:
        self.op, self.kernel, self.device = op, version.kernel, version.device

    @property
    def unrunnable(self) -> str:
        return "no GPU here" if self.device == "cuda" and not gpu.present() else ""

    def submit(self, cases: Sequence[Case], *, repeats: int = 1, spread: bool = False) -> _Done:
        dying = apart.dying(lambda c: evidence(self.op, c, "forward"), made_up(self.op, cases))
        return _Done([Finding(c, "dies", dying[c]) if c in dying else self._try(c, repeats) for c in cases])

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _try(self, case: Case, repeats: int) -> Finding:
        refused, wanted = "", None
        try:
            wanted = evidence(self.op, case, "forward").wanted
        except Exception as error:
            refused = said(error)
        finally:
            forget(self.op, made_up(self.op, [case]))
        wanted = wanted or Expected(case, self.op.schema, skipped="the reference refuses it")
        runs = []
        for _ in range(repeats):
            try:
                runs.append(self._run(wanted))
            except Exception as error:
                status = "both refuse" if refused else "raises"
                return Finding(case, status, refused or said(error))
        if refused:
            return Finding(case, "accepts", f"the reference refuses it ({refused}), the kernel takes it")
        first = runs[0][1]
        worst = next((f for f, _ in runs if f.wrong), runs[0][0])
        return replace(worst, differing=sum(bits != first for _, bits in runs[1:]))

    def _run(self, wanted: Expected) -> tuple[Finding, tuple]:
        op, schema, case = self.op, self.op.schema, wanted.case
        inputs = moved(wanted.inputs(), self.device)
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
        owners = {_storage(x): n for n, v in inputs.items() for x in tensors_in(v) if x.numel()}
        for name, x in results.items():
            if name in schema.mutated or name.partition("[")[0] in schema.mutated:
                continue
            owner = owners.get(_storage(x)) if isinstance(x, torch.Tensor) and x.numel() else None
            if owner is not None:
                said = f"{name} shares memory with {owner}; an output must be a tensor of its own"
                return Finding(case, "aliasing", said), bits
            if isinstance(x, torch.Tensor) and x.numel():
                owners[_storage(x)] = name
        outcome = agree.judge(moved({n: as_tensor(x) for n, x in results.items()}, "cpu"), wanted)
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
        self.former = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: object) -> None:
        torch.use_deterministic_algorithms(self.former[0], warn_only=self.former[1])
        self.quiet.__exit__(None, None, None)


def _storage(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _same_bytes(a: object, b: object) -> bool:
    pairs = zip(tensors_in(a), tensors_in(b), strict=True)
    return all(x.shape == y.shape and torch.equal(_raw(x), _raw(y)) for x, y in pairs)


def _raw(x: torch.Tensor) -> torch.Tensor:
    return x.detach().contiguous().reshape(-1).view(torch.uint8) if x.numel() else x.new_zeros(0, dtype=torch.uint8)


def made_up(op, cases: Sequence[Case]) -> list[Case]:
    """Those that are none of the op's own, on which its reference has lived already."""
    own = set(map(id, op.case_list(bench=True)))
    return [c for c in cases if id(c) not in own]


def said(error: BaseException) -> str:
    """What an exception says, in one line."""
    lines = str(getattr(error, "message", "") or error).strip().splitlines()
    said = lines[0] if lines else ""
    return said if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {said}"
