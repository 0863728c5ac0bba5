"""Gradients where quick checks do not look: by some arguments alone, from expanded cotangents, of second order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...case import SEED, Case
from ...inputs import FLOATS, draw, fresh, tensors_in
from ...reference import Definition
from ...reports.report import Row
from .. import agree
from ..cures import cure
from ..expect import Expected, Output, lowest, seeded, widened
from ..float64 import Limits, TooMuchError, float64
from ..gradients import expected_gradients, pull
from ..sample import Checkable, Sample, call, failed

LIMIT_S = 10.0
DIRECTIONS = 3
STEPS = (1e-2, 1e-3, 1e-4, 1e-5)  # of the largest magnitude, widest first: near a kink (relu, max) narrow ones tell
ROUNDING = 0.02  # a step so narrow that rounding may hide more of the slope tells nothing


def unjudged(sample: Sample) -> str:
    """Why no gradient can be judged, "" where one can."""
    if sample.op.random:
        return "the op draws random numbers"
    if not sample.takes_gradients:
        return "nothing here takes a gradient"
    return "the op has no reference" if sample.op.reference is None else ""


def requires_grad(sample: Sample) -> list[Row]:
    """The gradient of each argument alone is what it is when all are asked for."""
    name, op, case = "requires_grad", sample.op, sample.case
    if reason := unjudged(sample):
        return [Row(name, sample.label, "skip", f"not judged: {reason}")]
    named = case.bound(op.schema)
    moving = [n for n, v in named.items() if any(x.dtype in FLOATS for x in tensors_in(v)) and n not in case.constant]
    tried = []
    for chosen in [[n] for n in moving] if len(moving) > 1 else []:
        alone = replace(case, constant=frozenset(set(named) - set(chosen)))
        if row := _differs(name, f"{', '.join(chosen)} alone", op, alone, sample.device):
            return [row]
        tried.append(chosen[0])
    spread = expected_gradients(op.reference, op.schema, case, device=sample.device, spread=True)
    if not spread.skipped:
        outcome = agree.judge(pull(op, spread), spread)
        if outcome.status != "agree":
            said = f"from an expanded incoming gradient, as sum() makes it: {outcome.detail}"
            return [Row(name, "out.sum()", "fail", said, cure("gradients", said), outcome.mismatch)]
        tried.append("all from an expanded incoming gradient, as sum() makes it")
    if silent := _without_gradients(sample):
        return [failed(name, "no_grad", silent)]
    return [Row(name, sample.label, "pass", f"right for {', '.join(tried)}; under no_grad nothing requires one")]


def _differs(name: str, about: str, op: Checkable, case: Case, device: str) -> Row | None:
    wanted = expected_gradients(op.reference, op.schema, case, device=device)
    if wanted.skipped:
        return None
    try:
        outcome = agree.judge(pull(op, wanted), wanted)
    except Exception as error:
        return failed(name, about, error)
    if outcome.status == "agree":
        return None
    return Row(name, about, "fail", outcome.detail, cure("gradients", outcome.detail), outcome.mismatch)


def _without_gradients(sample: Sample) -> str:
    args, kwargs = sample.inputs(grad=not sample.op.schema.mutated)
    with torch.no_grad():
        out = sample.op(*args, **kwargs)
    return "an output requires a gradient under no_grad" if any(x.requires_grad for x in tensors_in(out)) else ""


def laid_out(sample: Sample, cases: Sequence[Case]) -> list[Row]:
    """Gradients of inputs in other layouts and sizes, through the op as callers take them."""
    name = "gradients, other inputs"
    if reason := unjudged(sample):
        return [Row(name, sample.label, "skip", f"not judged: {reason}")]
    if sample.op.compare_function is not None:
        why = "compare says that several answers are right, each with a gradient of its own"
        return [Row(name, sample.label, "skip", f"not judged: {why}")]
    worst, ran = 0.0, 0
    for case in cases:
        wanted = expected_gradients(sample.op.reference, sample.op.schema, case, device=sample.device)
        if wanted.skipped:
            continue
        try:
            outcome = agree.judge(pull(sample.op, wanted), wanted)
        except Exception as error:
            return [failed(name, case.label, error)]
        if outcome.status != "agree":
            return [Row(name, case.label, "fail", outcome.detail, cure("gradients", outcome.detail), outcome.mismatch)]
        worst, ran = max(worst, outcome.share), ran + 1
    if not ran:
        return [Row(name, sample.label, "skip", "not judged: no input takes a gradient")]
    detail = f"as the reference's vjp in float64, error {worst:.2g} of what is allowed"
    return [Row(name, f"{ran} inputs", "pass", detail)]


def second(sample: Sample) -> Row:
    """The gradient of the gradient, by the inputs and by what came in, against that of the reference."""
    name, op = "second derivatives", sample.op
    if reason := unjudged(sample):
        return Row(name, sample.label, "skip", f"not judged: {reason}")
    case, how = _widest(sample)
    definition = Definition(op.schema, op.reference)

    def reference(named: Mapping[str, object]) -> object:
        return definition.run(*definition.split(list(named.values())))

    inputs = fresh(case.bound(op.schema), device=sample.device)
    try:
        with seeded(sample.device), Limits(LIMIT_S):
            plain = _twice(reference, op, inputs, case)
        wide = fresh(case.bound(op.schema), dtypes=torch.float64, device=sample.device)
        with seeded(sample.device), float64(lowest(inputs), LIMIT_S):
            true = _twice(reference, op, wide, case)
    except TooMuchError as error:
        return Row(name, case.label, "skip", f"not judged: {error}")
    except RuntimeError as error:
        return Row(name, case.label, "skip", f"not judged: the reference has none ({str(error).splitlines()[0]})")
    if not plain:
        return Row(name, case.label, "skip", "not judged: the reference's gradient takes no gradient: it is linear")
    try:
        got = _twice(lambda named: call(op, named), op, fresh(case.bound(op.schema), device=sample.device), case)
    except Exception as error:
        return failed(name, case.label, error)
    got = {n: got.get(n, torch.zeros_like(x)) for n, x in plain.items()}
    outputs = tuple(Output(n, x, widened(true[n])) for n, x in plain.items() if n in true)
    outcome = agree.judge(got, Expected(case, op.schema, outputs, device=sample.device))
    if outcome.status != "agree":
        return Row(name, case.label, "fail", outcome.detail, cure(name, outcome.detail), outcome.mismatch)
    detail = (
        f"{how}, as the reference's, error {outcome.share:.2g} of what is allowed; third derivatives were not tried"
    )
    return Row(name, case.label, "pass", detail)


def _twice(run: Callable, op: Checkable, named: dict, case: Case) -> dict[str, Tensor]:
    """By name of the argument (or of the incoming gradient), the gradient of <v, gradients> for seeded v."""
    moving: dict[str, Tensor] = {}
    placed = {}
    for n, value in named.items():
        found = []
        for i, x in enumerate(tensors_in(value)):
            if x.is_floating_point() and n not in case.constant:
                x = x.detach().requires_grad_()
                moving[f"{n}[{i}]" if isinstance(value, (list, tuple)) else n] = x
                x = x.clone() if n in op.schema.mutated else x
            found.append(x)
        placed[n] = (found if isinstance(value, (list, tuple)) else found[0]) if tensors_in(value) else value
    with torch.enable_grad():
        results = {n: r for n, r in agree.leaves(op.schema, placed, run(placed)).items() if r.requires_grad}
        if not results:
            return {}
        incoming = {n: _drawn(r, i).requires_grad_() for i, (n, r) in enumerate(results.items())}
        first = torch.autograd.grad(
            list(results.values()), list(moving.values()), list(incoming.values()), create_graph=True, allow_unused=True
        )
        flowing = [(g, _drawn(g, 7 + i)) for i, g in enumerate(first) if g is not None and g.requires_grad]
        if not flowing:
            return {}
        wanted = {**moving, **{f"grad_{n}": g for n, g in incoming.items()}}
        found2 = torch.autograd.grad(
            [g for g, _ in flowing], list(wanted.values()), [v for _, v in flowing], allow_unused=True
        )
    return {
        f"second by {n}": torch.zeros_like(x) if g is None else g
        for (n, x), g in zip(wanted.items(), found2, strict=True)
    }


def _drawn(x: Tensor, index: int) -> Tensor:
    return draw(tuple(x.shape), torch.float32, None, None, SEED + 100 + index).to(device=x.device, dtype=x.dtype)


def _widest(sample: Sample) -> tuple[Case, str]:
    """The case in float64 where the op takes it, else as it is, and how to say so."""
    op, case = sample.op, sample.case
    moving = [n for n, v in case.bound(op.schema).items() if any(x.dtype in FLOATS for x in tensors_in(v))]
    wide = case.cast(dict.fromkeys(moving, torch.float64))
    if case.dtype is torch.float64:
        return case, "in float64"
    try:
        with torch.no_grad():
            call(op, fresh(wide.bound(op.schema), device=sample.device))
    except Exception:
        return (
            case,
            f"in {case.dtype_name or 'its dtypes'}, by the rule of agreement, since the kernel has no form for float64",
        )
    return wide, "in float64"


def directional(sample: Sample) -> Row:
    """The first-order gradient against differences of the op's own forward, along random directions.

    The quotient at two step widths says how exact it is: the gradient may be off by as much and no more. It is right
    if it is so at one width: a wide step crosses kinks, a narrow one drowns in rounding.
    """
    name, op, case = "directional derivatives", sample.op, sample.case
    if op.random or not sample.takes_gradients:
        why = "the op draws random numbers" if op.random else "nothing here takes a gradient"
        return Row(name, sample.label, "skip", f"not judged: {why}")
    if op.schema.mutated:
        return Row(name, sample.label, "skip", "not judged: it changes its arguments; the gradients rows judge them")
    named = fresh(case.bound(op.schema), device=sample.device)
    moving = {
        n: v for n, v in named.items()
        if isinstance(v, Tensor) and v.dtype in FLOATS and v.numel() and n not in case.constant
    }  # fmt: skip
    for v in moving.values():
        v.requires_grad_()
    with torch.enable_grad():
        results = {n: r for n, r in agree.leaves(op.schema, named, call(op, named)).items() if r.requires_grad}
        weights = {n: _drawn(r, i) for i, (n, r) in enumerate(results.items())}
        found = torch.autograd.grad(
            list(results.values()), list(moving.values()), list(weights.values()), allow_unused=True
        )
    for (n, x), g in zip(moving.items(), found, strict=True):
        for k in range(DIRECTIONS):
            direction = draw(tuple(x.shape), torch.float64, None, None, SEED + k).to(x.device)
            said = 0.0 if g is None else (g.double() * direction).sum().item()
            met: list[tuple[float, float]] = []  # slope of the op, and how far off that may be
            for h in _steps(x.dtype):
                wide, slope = (_slope(op, named, n, direction, weights, width) for width in (2 * h, h))
                if wide is None or slope is None:
                    return Row(name, sample.label, "skip", "not judged: shapes depend on values, which have to move")
                met.append((slope, 4 * abs(wide - slope) + _noise(x.dtype, said, g, direction, h)))
                if abs(said - slope) <= met[-1][1]:
                    break
            else:
                slope, noise = met[-1]
                text = f"grad_{n} gives a slope of {said:.4g} along a direction in which the op itself has "
                return failed(name, sample.label, f"{text}{slope:.4g}, give or take {noise:.2g}")
    where = case.dtype_name or "its dtypes"
    detail = f"along {DIRECTIONS} directions for each argument, the gradient is the slope of the forward in {where}"
    return Row(name, sample.label, "pass", f"{detail}, as far as differences can tell")


def _slope(op: Checkable, named: Mapping, name: str, direction: Tensor, weights: Mapping, step: float) -> float | None:
    """A difference quotient; None where results of other shapes come from values so near."""
    x = named[name].detach()
    h = step * max(x.double().abs().max().item(), 1e-3)
    values = []
    for sign in (1, -1):
        moved = (x.double() + sign * h * direction).to(x.dtype)
        arguments = fresh({**{n: v.detach() if isinstance(v, Tensor) else v for n, v in named.items()}, name: moved})
        with torch.no_grad():
            results = agree.leaves(op.schema, arguments, call(op, arguments))
        if any(results[n].shape != w.shape for n, w in weights.items()):
            return None
        values.append(sum((results[n].double() * w.double()).sum().item() for n, w in weights.items()))
    return (values[0] - values[1]) / (2 * h)


def _steps(dtype: torch.dtype) -> list[float]:
    """The steps that a dtype can tell slopes by; at least the widest."""
    return [h for h in STEPS if h == STEPS[0] or 64 * torch.finfo(dtype).eps / h < ROUNDING]


def _noise(dtype: torch.dtype, said: float, g: Tensor | None, direction: Tensor, step: float) -> float:
    """What rounding alone may do to a quotient of differences: of the dtype's eps over the step."""
    scale = 0.0 if g is None else (g.double().abs() * direction.abs()).sum().item()
    return (64 * torch.finfo(dtype).eps / step + 1e-3) * max(scale, abs(said), 1e-6)
