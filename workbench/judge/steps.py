"""The steps of a trial: one call of the kernel for each case, and what has to be called before or after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..register import pullback
from ..schema import Schema
from ..tiers import Kernel
from ..trial import Made, Meta, Step
from .evidence import Evidence, given


def steps_of(op, kernel: Kernel, found: Sequence[Evidence], forward: Kernel | None) -> tuple[list[Step], list]:
    """One step a case; before a backward that needs them, the forward that makes the saved tensors."""
    steps: list[Step] = []
    judged: list[tuple[str, Evidence | None]] = []
    for e in found:
        if kernel.slot == "forward":
            steps.append(_forward_step(op, kernel, e))
        else:
            saved: tuple[Made, ...] = ()
            if forward is not None:
                steps.append(_forward_step(op, forward, e))
                judged.append(("forward", None))
                saved = _made(op.schema, len(steps) - 1)
            steps.append(_backward_step(op, kernel, e, saved))
        judged.append((kernel.slot, e))
    return steps, judged


def with_backward(
    op, backward: Kernel, steps: list[Step], judged: list, more: Sequence[Evidence]
) -> tuple[list[Step], list]:
    """After each forward step the installed backward on what that forward saved."""
    if op.schema.mutated:  # the forward changes its arguments: backward would see them as they are after it
        return steps, judged
    steps, judged = list(steps), list(judged)
    for i, e in enumerate(more):
        steps.append(_backward_step(op, backward, e, _made(op.schema, i)))
        judged.append(("backward", e))
    return steps, judged


def _made(schema: Schema, step: int) -> tuple[Made, ...]:
    return tuple(Made(step, len(schema.outputs) + i) for i in range(len(schema.saves)))


def _forward_step(op, kernel: Kernel, e: Evidence) -> Step:
    schema = op.schema
    args, keywords = op.definition.split([given(e, a.name) for a in schema.arguments])
    return Step(
        kernel.step_op,
        tuple(args),
        keywords,
        case=e.case.label,
        outputs=(*schema.outputs, *schema.saves),
        layout=tuple(Meta.of(o.value) for o in e.wanted.outputs[: len(schema.outputs)]) if e.wanted.outputs else None,
        allocates=tuple(a.name for a in kernel.declaration.allocations),
    )


def _backward_step(op, kernel: Kernel, e: Evidence, saved: Sequence[Made]) -> Step:
    schema = op.schema
    names = [a.name for a in kernel.declaration.arguments]
    kept = names[: len(names) - len(schema.saves)] if schema.saves else names
    absent = [pullback.absent() for _ in schema.saves] if not saved else list(saved)
    return Step(
        f"{kernel.native_schema.qualname}_backward",
        (*(given(e, n) for n in kept), *absent),
        case=e.case.label,
        outputs=tuple(f"grad_{a.name}" for a in schema.tensors),
        layout=_gradient_layout(e, schema),
        allocates=tuple(a.name for a in kernel.declaration.allocations),
    )


def _gradient_layout(e: Evidence, schema: Schema) -> tuple[Meta, ...] | None:
    """A gradient is laid out as its argument; launchers cannot ask for those of lists."""
    if any(a.is_tensor_list for a in schema.tensors):
        return None
    owners = [e.values[a.name] for a in schema.tensors]
    return tuple(Meta.of(pullback.absent() if v is None else torch.empty_like(v)) for v in owners)
