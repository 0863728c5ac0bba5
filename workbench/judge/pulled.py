"""The gradient of an op whose own library brings it, as further steps of its trial in the worker."""

from __future__ import annotations

from collections.abc import Sequence

from ..case import Case
from ..register import pullback
from ..schema import Schema
from ..trial import Step
from ..trial.probe import Gradient, gradient_name
from .evidence import evidence, given


def gradient(schema: Schema) -> Gradient | None:
    """How the worker takes the gradient of an op; None for ops that mutate, and for lists of tensors."""
    if schema.mutated or not schema.outputs or any(t != "Tensor" for t in schema.output_types):
        return None
    if not schema.tensors or any(a.is_tensor_list for a in schema.arguments):
        return None
    spelled = pullback.backward_schema(schema).partition("(")[2]
    return Gradient(schema.qualname, f"{gradient_name(schema.qualname)}({spelled}", len(schema.outputs))


def after(op, cases: Sequence[Case], steps: Sequence[Step], judged: Sequence[tuple]) -> tuple[list[Step], list[tuple]]:
    """Behind the steps of a forward one for each case in which something takes a gradient, and what it should give."""
    steps, judged = list(steps), list(judged)
    if op.reference is None or not op.differentiable:
        return steps, judged
    schema = op.schema
    name = f"wb_probe::{gradient_name(schema.qualname)}"
    names = [a.partition(" ")[2] for a in _parameters(schema)]
    for c in cases:
        e = evidence(op, c, "backward")
        if not e.wanted.skipped:
            outputs = tuple(f"grad_{a.name}" for a in schema.tensors)
            steps.append(Step(name, tuple(given(e, n) for n in names), case=c.label, outputs=outputs))
            judged.append(("backward", e))
    return steps, judged


def _parameters(schema: Schema) -> list[str]:
    return pullback.backward_schema(schema).partition("(")[2].partition(") ->")[0].split(", ")
