"""The verdict on what a kernel left behind: `judge` holds it against what `expected` says. In numbers: `rule.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..reports.report import Mismatch, Outcome
from . import rule
from .expect import (
    Expected,
    Output,
    compared,
    expected,
    expected_of_version,
    is_random,
    leaves,
    lowest,
    plain_dtype,
    widened,
)
from .picture import mismatch

# Elements judged at a time. On a CPU they stay in the caches, and torch starts no threads for so few; on a GPU it is a
# matter of memory.
PIECE = {"cpu": 1 << 14, "cuda": 1 << 24}


def judge(got: Mapping[str, Tensor], wanted: Expected, *, unwritten: Mapping[str, int] | None = None) -> Outcome:
    """The verdict on what a call left behind: metadata first, then values.

    >>> judge({"out": torch.zeros(5, 123)}, wanted).detail
    'out: 615 of 615 elements differ, most at [2, 17]: 0.0 where 3.1 was wanted'

    `unwritten` counts, by name, the elements that still hold the trial's poison.
    """
    name, dtype = wanted.case.name, wanted.case.dtype_name
    if wanted.skipped:
        return Outcome(name, dtype, "skip", detail=wanted.skipped)
    values = {n: v.detach() for n, v in got.items()}
    detail = _metadata(values, wanted)
    pairs = wanted.outputs
    if not detail and wanted.compared is not None:
        pairs = wanted.compared
        values, detail = _through_compare(values, wanted)
    if detail:
        return Outcome(name, dtype, "mismatch", float("inf"), detail)
    share = 0.0
    for o in pairs:
        verdict = _verdict(values[o.name], o, wanted)
        if verdict.wrong.any() and wanted.cotangents:
            terms = wanted.terms().get(o.name) if wanted.terms is not None else None
            verdict = _verdict(values[o.name], o, wanted, cancels=True, terms=terms)
        if verdict.wrong.any():
            never = (unwritten or {}).get(o.name, 0)
            inputs = wanted.case.bound(wanted.schema) if wanted.compared is None and not wanted.cotangents else None
            found = mismatch(o.name, values[o.name].cpu(), o.value.cpu(), verdict.wrong.cpu(), never, inputs)
            return Outcome(name, dtype, "mismatch", verdict.share, _sentence(found), found)
        share = max(share, verdict.share)
    return Outcome(name, dtype, "agree", share, wanted.note)


def _through_compare(values: Mapping[str, Tensor], wanted: Expected) -> tuple[dict[str, Tensor], str]:
    """The results as the op's `compare` sees them, or why it cannot."""
    assert wanted.compared is not None
    try:
        found = compared(wanted, values)
    except Exception as error:  # a kernel's results can make a correct comparison fail: an index out of range
        return {}, f"compare could not use the results: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    if [x.shape for x in found] != [o.value.shape for o in wanted.compared]:
        return {}, "compare made other shapes of these results than of the reference's"
    return {o.name: x for o, x in zip(wanted.compared, found, strict=True)}, ""


def _metadata(got: Mapping[str, Tensor], wanted: Expected) -> str:
    """What is wrong with dtypes, shapes and strides, in one sentence. Strides of sizes 0 and 1 mean nothing."""
    missing = [o.name for o in wanted.outputs if o.name not in got]
    if missing or len(got) != len(wanted.outputs):
        return f"{len(got)} results ({', '.join(got)}), the reference gives {', '.join(o.name for o in wanted.outputs)}"
    for o in wanted.outputs:
        x = got[o.name]
        if x.dtype != o.value.dtype:
            return f"{o.name} is {_short(x.dtype)}, the reference gives {_short(o.value.dtype)}"
        if x.shape != o.value.shape:
            return f"{o.name} has shape {tuple(x.shape)}, the reference gives {tuple(o.value.shape)}"
        if (
            o.strides is not None
            and x.numel()
            and any(n > 1 and a != b for n, a, b in zip(x.shape, x.stride(), o.strides, strict=True))
        ):
            return f"{o.name} has strides {tuple(x.stride())}, the reference gives {o.strides}"
    return ""


def _verdict(
    got: Tensor, output: Output, wanted: Expected, *, cancels: bool = False, terms: Tensor | None = None
) -> rule.Verdict:
    piece = PIECE[output.value.device.type]
    if got.numel() > piece and not cancels and got.shape[0] > 1 and math.prod(got.shape[1:]) >= rule.ROW:
        return _in_pieces(got, output, wanted, piece)
    reference, true, case = output.value, output.true, wanted.case
    got = got.to(reference.device)
    if not (got.is_floating_point() or got.is_complex()):
        return rule.same(got, reference)
    dtype = plain_dtype(got.dtype)
    if wanted.compared is not None:  # these were computed in float64, from results in the case's dtypes
        dtype = lowest({"inputs": case.args, "outputs": [o.value for o in wanted.outputs]})
    wide, plain, exact = widened(got), widened(reference), widened(true)
    if wide.is_complex():
        wide, plain, exact = torch.view_as_real(wide), torch.view_as_real(plain), torch.view_as_real(exact)
    if case.atol is not None or case.rtol is not None:
        verdict = rule.close(wide, plain, exact, dtype, case.atol or 0.0, case.rtol or 0.0)
    else:
        if terms is not None and got.is_complex():
            terms = torch.stack([terms, terms], -1)
        allowed = {"error": case.error, "slack": wanted.slack}
        verdict = rule.agrees(wide, plain, exact, dtype, **allowed, own=output.own, cancels=cancels, terms=terms)
    return rule.Verdict(verdict.wrong.any(-1), verdict.share) if got.is_complex() else verdict


def _in_pieces(got: Tensor, output: Output, wanted: Expected, piece: int) -> rule.Verdict:
    """The same verdict, some rows at a time: a row is held against nothing outside of it."""
    step = max(piece // math.prod(got.shape[1:]), 1)
    found = []
    for k in range(0, got.shape[0], step):
        rows = slice(k, k + step)
        own = None if output.own is None else output.own[rows]
        part = replace(output, value=output.value[rows], true=output.true[rows], own=own)
        found.append(_verdict(got[rows], part, wanted))
    return rule.Verdict(torch.cat([v.wrong for v in found]), max(v.share for v in found))


def _sentence(found: Mismatch) -> str:
    never = f"; {found.unwritten} were never written" if found.unwritten else ""
    return f"{found.output}: {found.count} of {found.total} elements differ, {worst(found)}{never}"


def worst(found: Mismatch) -> str:
    """The element that differs most: `most at [2, 17]: 0 where 3.1 was wanted`."""
    index, got, want = found.worst[0]
    where = f" at {list(index)}" if index else ""
    digits = next((d for d in range(6, 17) if f"{got:.{d}g}" != f"{want:.{d}g}"), 17)  # as many as tell them apart
    return f"most{where}: {got:.{digits}g} where {want:.{digits}g} was wanted"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


__all__ = ["Expected", "Output", "expected", "expected_of_version", "is_random", "judge", "leaves"]
