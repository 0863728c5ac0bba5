"""What a step of a trial left behind, as the outcome of its case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..check import agree
from ..check.expect import as_tensor
from ..register import pullback
from ..reports.report import Outcome
from ..tiers import Kernel
from ..trial import Result
from .evidence import Evidence


def placed(kernels: Sequence[Kernel], result: Result) -> Result:
    """A result that tells on which line of its cell the kernel died, where that can be told."""
    where = next((w for k in kernels if (w := k.place(result.trace))), "") if result.trace else ""
    return replace(result, detail=f"{where}: {result.detail}") if where else result


def outcome(op, slot: str, e: Evidence, result: Result, limit_s: float) -> Outcome:
    """The verdict on a result: it failed by itself, shares memory, or is held against what was wanted."""
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
