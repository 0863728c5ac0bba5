"""torch's gradcheck, where an op really computes in float64; elsewhere finite differences are noise: a row says so."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from ..inputs import FLOATS, fresh, tensors_in
from ..reports.report import Row
from . import agree
from .remember import answer
from .sample import Checkable, Sample, call, failed

ELEMENTWISE_S = 4.0  # beyond that a full check, too, looks along random directions
EXACT = 1e-9  # relative: float32 anywhere inside leaves 1e-8 at best


def gradcheck(sample: Sample) -> Row:
    """The backward against finite differences of the forward, in float64."""
    op, label = sample.op, sample.label
    case = sample.case
    moving = [n for n, v in case.bound(op.schema).items() if any(x.dtype in FLOATS for x in tensors_in(v))]
    inputs = fresh(case.cast(dict.fromkeys(moving, torch.float64)).bound(op.schema), device=sample.device)
    if reason := _not_in_float64(sample, inputs, moving):
        instead = "nothing else judges them" if op.reference is None else "the gradients rows judge them instead"
        detail = f"not run: {reason}, and below it finite differences are noise; {instead}"
        return Row("gradcheck", label, "skip", detail)
    tensors = [x for n, v in inputs.items() for x in tensors_in(v) if x.is_floating_point() and n not in case.constant]
    for x in tensors:
        x.requires_grad_()

    def run(*leaves: Tensor) -> tuple[Tensor, ...]:
        swapped = dict(zip(map(id, tensors), leaves, strict=True))
        named = {n: _swapped(v, swapped, n in op.schema.mutated) for n, v in inputs.items()}
        left = agree.leaves(op.schema, named, call(op, named))
        return tuple(r for r in left.values() if r.requires_grad)

    fast = sample.level == "quick" or _takes(run, tensors) > ELEMENTWISE_S
    try:
        torch.autograd.gradcheck(run, tensors, fast_mode=fast)
    except GradcheckError as error:
        said = " ".join(line.strip() for line in str(error).splitlines()[:3])
        return failed("gradcheck", label, said, "float64 inputs")
    how = "along random directions" if fast else "element by element"
    detail = f"by finite differences in float64, {how}, the backward is the forward's derivative"
    return Row("gradcheck", label, "pass", f"{detail}; second derivatives were not tried")


def _takes(run: Callable[..., object], tensors: Sequence[Tensor]) -> float:
    """Seconds that two calls for each element would take: an interpreter needs milliseconds for one."""
    started = time.perf_counter()
    run(*tensors)
    return (time.perf_counter() - started) * 2 * sum(x.numel() for x in tensors)


def _not_in_float64(sample: Sample, inputs: dict[str, object], moving: list[str]) -> str:
    """Why the op cannot be said to compute in float64; "" where it does."""
    op = sample.op
    if sample.level == "quick" and _has_to_be_built(op):
        return "no case is in float64, and a form for it would have to be built"
    given = fresh(inputs)
    try:
        with torch.no_grad():
            results = agree.leaves(op.schema, given, call(op, given))
    except Exception:
        return "it has no form for float64"
    if reason := _backward_not_in_float64(sample, inputs):
        return reason
    floats = [r for r in results.values() if r.is_floating_point()]
    inside = "it computes in less than float64 inside"
    if any(r.dtype != torch.float64 for r in floats):
        return inside
    if op.reference is None or op.compare_function is not None:
        return ""
    case = sample.case.cast(dict.fromkeys(moving, torch.float64))
    wanted = answer(op.reference, op.schema, case, device=sample.device)
    for o in wanted.outputs:
        scale = o.true.abs().max().item() if o.true.numel() and o.true.is_floating_point() else 0.0
        if o.true.dtype == torch.float64 and not torch.allclose(
            results[o.name], o.true, rtol=EXACT, atol=EXACT * scale, equal_nan=True
        ):
            return inside
    return ""


def _has_to_be_built(op: Checkable) -> bool:
    """Would a call in float64 have to compile and try a kernel first, for each edit again?"""
    native = any(hasattr(v.kernel, "build") for v in getattr(op, "slots", {}).values())
    return native and not any(c.dtype in (torch.float64, None) for c in op.case_list())


def _backward_not_in_float64(sample: Sample, inputs: dict[str, object]) -> str:
    """Why there is no backward in float64; what else it raises is for gradcheck to meet."""
    op, constant = sample.op, sample.case.constant
    given = fresh(inputs)
    moving = [x for n, v in given.items() for x in tensors_in(v) if x.is_floating_point() and n not in constant]
    swapped = {id(x): x.detach().requires_grad_() for x in moving}
    named = {n: _swapped(v, swapped, n in op.schema.mutated) for n, v in given.items()}
    try:
        results = [r for r in agree.leaves(op.schema, named, call(op, named)).values() if r.requires_grad]
        torch.autograd.grad(results, list(swapped.values()), [torch.zeros_like(r) for r in results], allow_unused=True)
    except RuntimeError as error:
        refused = "no form for" in str(error) or re.search(r"was tried for .* and differs", str(error))
        return "its backward has no form for float64" if refused else ""
    return ""


def _swapped(value: object, swapped: dict[int, Tensor], mutated: bool) -> object:
    """An argument with its leaves replaced; what the op mutates is a clone, since leaves cannot be."""
    if isinstance(value, (list, tuple)):
        return [_swapped(v, swapped, mutated) for v in value]
    found = swapped.get(id(value), value)
    return found.clone() if mutated and isinstance(found, Tensor) else found
