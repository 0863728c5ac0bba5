"""What the gradients of an op should be: the vjp of its reference for seeded cotangents, in its dtype and float64."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..case import SEED, Case
from ..errors import WorkbenchError
from ..inputs import draw, fresh
from ..reference import Definition
from ..schema import Schema
from .expect import LIMIT_S, Expected, Output, leaves, lowest, seeded, widened
from .float64 import NO_MEMORY, Limits, Shaken, TooMuchError, float64, instead

SHAKES = 3


def expected_gradients(
    reference: Callable | None,
    schema: Schema,
    case: Case,
    *,
    device: str = "cpu",
    limit_s: float = LIMIT_S,
    references: Mapping[str, Callable] | None = None,
    without: str = "",
    spread: bool = False,
) -> Expected:
    """The gradients of the floating tensor arguments, `grad_x` or `grad_params[0]`, and the cotangents they are for.

    >>> wanted = expected_gradients(rmsnorm.reference, rmsnorm.schema, case)
    >>> judge(pull(rmsnorm, wanted), wanted).status
    'agree'

    Integer outputs and those that the reference detaches get no cotangent; arguments made with `grad=False` no
    gradient. For a mutating op the outputs are its mutated arguments. `without` names a result whose gradient is
    undefined; `spread` makes cotangents of one number each, expanded, as `sum()` does. `references` as in `expected`.
    """
    start = time.perf_counter()
    if reference is None:
        return Expected(case, schema, device=device, skipped="the op has no reference")
    definition = Definition(schema, reference)

    def run(named: Mapping[str, object]) -> object:
        return definition.run(*definition.split(list(named.values())))

    inputs = fresh(case.bound(schema), device=device)
    try:
        with seeded(device), Limits(limit_s), instead(references):
            results, moving = _forward(run, schema, inputs, case.constant)
            found = enumerate(results.items())
            make = _spread if spread else _cotangent
            cotangents = {n: make(r, i) for i, (n, r) in found if r.requires_grad and n != without}
            values = _backward(results, moving, cotangents)
        wide = fresh(case.bound(schema), dtypes=torch.float64, device=device)
        with seeded(device), float64(lowest(inputs), limit_s, references):
            results, moving = _forward(run, schema, wide, case.constant)
            true = _backward(results, moving, {n: widened(c) for n, c in cotangents.items()})
    except (TooMuchError, MemoryError, torch.OutOfMemoryError) as error:
        return Expected(case, schema, device=device, skipped=str(error) or NO_MEMORY)
    outputs = tuple(Output(n, v, true[n]) for n, v in values.items())
    skipped = "" if cotangents and outputs else "no output takes a gradient here"
    terms = functools.cache(lambda: _terms(run, schema, case, cotangents, true, device, limit_s, references))
    return Expected(
        case, schema, outputs, device=device, seconds=time.perf_counter() - start, cotangents=cotangents,
        skipped=skipped, terms=terms,
    )  # fmt: skip


def _terms(
    run: Callable,
    schema: Schema,
    case: Case,
    cotangents: Mapping[str, Tensor],
    true: Mapping[str, Tensor],
    device: str,
    limit_s: float,
    references: Mapping[str, Callable] | None,
) -> dict[str, Tensor]:
    """How far each element of a gradient moves when all arithmetic is shaken, by how far: what it is a difference of.

    Where the reference cannot be run so, nothing.
    """
    found: dict[str, Tensor] = {}
    low = lowest(case.bound(schema))
    try:
        for seed in range(SHAKES):
            wide = fresh(case.bound(schema), dtypes=torch.float64, device=device)
            with seeded(device), float64(low, limit_s, references, shaken=seed << 20):
                results, moving = _forward(run, schema, wide, case.constant)
                moved = _backward(results, moving, {n: widened(c) * 1.0 for n, c in cotangents.items()})
            for n, x in moved.items():
                off = (x - true[n]).abs() / Shaken.DELTA
                found[n] = torch.maximum(found[n], off) if n in found else off
    except Exception:
        return {}
    return found


def pull(op: Callable, wanted: Expected) -> dict[str, Tensor]:
    """The gradients that an op gives for the cotangents of `wanted`, named as its outputs are.

    Raises WorkbenchError where an output that should take a gradient has none.
    """
    return _backward(*graph(op, wanted), wanted.cotangents)


def graph(op: Callable, wanted: Expected) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One call of an op with gradients on: its results, and the leaves that `pull` differentiates, as `grad_x`."""
    schema = wanted.schema
    definition = Definition(schema)

    def run(named: Mapping[str, object]) -> object:
        args, kwargs = definition.split(list(named.values()))
        return op(*args, **kwargs)

    results, moving = _forward(run, schema, wanted.inputs(), wanted.case.constant)
    cut = [n for n in wanted.cotangents if not results[n].requires_grad]
    if cut:
        raise WorkbenchError(f"{cut[0]} has no gradient, the reference's has one")
    return results, moving


def _forward(run: Callable, schema: Schema, inputs: Mapping[str, object], constant: frozenset) -> tuple[dict, dict]:
    """Results and leaves of one call with gradients on; what the op mutates is a clone of its leaf."""
    moving: dict[str, Tensor] = {}

    def leaf(argument: str, x: Any, place: str = "") -> object:
        if not isinstance(x, Tensor):
            return x
        if not (x.is_floating_point() or x.is_complex()) or argument in constant:
            return x.clone() if argument in schema.mutated else x  # a view made without gradients takes none in place
        moving[f"grad_{argument}{place}"] = x = x.detach().requires_grad_()
        return x.clone() if argument in schema.mutated else x

    named = {
        n: [leaf(n, x, f"[{i}]") for i, x in enumerate(v)] if isinstance(v, (list, tuple)) else leaf(n, v)
        for n, v in inputs.items()
    }
    with torch.enable_grad():
        return leaves(schema, named, run(named)), moving


def _backward(results: Mapping[str, Tensor], moving: Mapping[str, Tensor], cotangents: Mapping) -> dict[str, Tensor]:
    if not cotangents or not moving:
        return {}
    found = torch.autograd.grad(
        [results[n] for n in cotangents], list(moving.values()), list(cotangents.values()), allow_unused=True
    )
    pairs = zip(moving.items(), found, strict=True)
    return {n: torch.zeros_like(x) if g is None else g for (n, x), g in pairs}


def _cotangent(result: Tensor, index: int) -> Tensor:
    return draw(tuple(result.shape), result.dtype, None, None, SEED - index).to(result.device)


def _spread(result: Tensor, index: int) -> Tensor:
    """One number, seen in every place: all strides are 0."""
    return _cotangent(result.new_empty(()), index).expand(result.shape)
