"""The gradient of an op whose own library brings it, as further steps of its trial in the worker."""

from __future__ import annotations

from collections.abc import Sequence

from . import pullback
from .case import Case
from .evidence import Evidence, evidence, given
from .schema import Schema
from .trial import Step
from .trial.probe import Gradient, gradient_name


def gradient(schema: Schema) -> Gradient | None:
    """How the worker takes the gradient of an op; None for ops that mutate, and for lists of tensors."""
    if schema.mutated or not schema.outputs or any(t != "Tensor" for t in schema.output_types):
        return None
    if not schema.tensors or any(a.is_tensor_list for a in schema.arguments):
        return None
    spelled = pullback.backward_schema(schema).partition("(")[2]
    return Gradient(schema.qualname, f"{gradient_name(schema.qualname)}({spelled}", len(schema.outputs))


def steps(op, cases: Sequence[Case]) -> list[tuple[Step, Evidence]]:
    """One step for each case in which something takes a gradient."""
    if op.reference is None or not op.differentiable:
        return []
    schema, found = op.schema, []
    names = [a.partition(" ")[2] for a in _parameters(schema)]
    for c in cases:
        e = evidence(op, c, "backward")
        if not e.wanted.skipped:
            outputs = tuple(f"grad_{a.name}" for a in schema.tensors)
            arguments = tuple(given(e, n) for n in names)
            found.append(
                (Step(f"wb_probe::{gradient_name(schema.qualname)}", arguments, case=c.label, outputs=outputs), e)
            )
    return found


def _parameters(schema: Schema) -> list[str]:
    return pullback.backward_schema(schema).partition("(")[2].partition(") ->")[0].split(", ")
