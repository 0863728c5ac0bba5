"""The check of an op: agreement, torch's own expectations, gradients, compiled against eager. Cheapest first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from ..build import process
from ..case import Case
from ..errors import WorkbenchError
from ..inputs import tensors_in
from ..reference import unheard
from ..reports.report import Check, Row
from . import agree, raises
from .cures import cure, cure_of_values
from .gradcheck import gradcheck
from .gradients import pull
from .remember import answer, gradient_answer
from .sample import Checkable, Sample, call, guarded, size
from .torchs import OPCHECKS, compiled, opcheck

LEVELS = ("quick", "full")


def check(op: Checkable, level: str = "quick", *, device: str | None = None) -> Check:
    """Check what is installed for an op, on its cases.

    >>> check(rmsnorm).rows[0]
    Row(check='agreement', case='4x128 float32', status='pass', detail='agrees with the reference run in float64, ...')

    Each row says what it proved, on what, and what it did not; a failed one what to do. Agreement is looked at on all
    cases but those with `bench=True`, the rest on the smallest. `level="full"` adds gradcheck element by element.
    """
    if level not in LEVELS:
        raise WorkbenchError(f"check(level={level!r}): the levels are {' and '.join(LEVELS)}")
    process.refuse_at_the_end()  # torch compiles nothing any more, which would look like a fault of the op
    start = time.perf_counter()
    device = device or device_of(op)
    with nothing_learnt(op):
        broken, cases = _sound(op, op.case_list(), device)
        if cases:
            sample = Sample(op, min(cases, key=size), device, level)
            rows = [*broken, *(guarded("agreement", c.label, partial(_agreement, op, c, device)) for c in cases)]
            rows += _other_device(op, cases, device)
            rows += [opcheck(sample, *test) for test in OPCHECKS[:-1]]
            rows += _gradients(sample, cases)
            rows += [opcheck(sample, *OPCHECKS[-1])]
            rows += [guarded("compiled = eager", sample.label, lambda: compiled(sample))]
        elif broken:
            rows = [*broken, Row("agreement", "", "skip", "nothing was judged: the reference raises on every case")]
        else:
            detail = "nothing was judged: the op has no cases and was never called; give it some with @op.cases"
            rows = [Row("agreement", "", "skip", detail)]
        rows += _not_run(op)
    return Check(op.qualname, tuple(rows), level, time.perf_counter() - start)


def _sound(op: Checkable, cases: tuple[Case, ...], device: str) -> tuple[list[Row], tuple[Case, ...]]:
    """A row for each case on which the reference itself raises, and the other cases."""
    if op.reference is None or (op.random and op.compare_function is None):
        return [], cases
    rows = {}
    for case in cases:
        try:
            answer(op.reference, op.schema, case, op.compare_function, device=device)
        except Exception as error:
            detail = f"the reference itself raises {raises.told(op.reference, error)}"
            rows[case] = Row("reference", case.label, "fail", detail, raises.CURE)
    return list(rows.values()), tuple(c for c in cases if c not in rows)


def _other_device(op: Checkable, cases: tuple[Case, ...], device: str) -> list[Row]:
    """Agreement of the kernel of the CPU, where the rest is looked at on a GPU."""
    if device == "cpu" or ("forward", "cpu") not in getattr(op, "slots", {}):
        return []
    return [guarded("agreement, CPU", c.label, partial(_agreement, op, c, "cpu")) for c in cases]


def _not_run(op: Checkable) -> list[Row]:
    """The kernels that this machine has no device for."""
    rows = []
    for (slot, where), version in getattr(op, "slots", {}).items():
        why = getattr(version.kernel, "unrunnable", "")
        if why:
            arch = getattr(version.kernel, "compiled_for", None)
            detail = (
                f"compiled for {arch}, not run: {why}"
                if arch
                else f"not run: {why}"
                if arch is None
                else f"not compiled yet, not run: {why}"
            )
            rows.append(Row("agreement", f"{slot} {where} v{version.number}", "skip", detail))
    return rows


def _agreement(op: Checkable, case: Case, device: str) -> Row:
    if op.reference is None:
        return Row("agreement", case.label, "skip", "not judged: the op has no reference to agree with")
    if op.random and op.compare_function is None:
        detail = "not judged: the reference draws random numbers; say with @op.compare what must be equal"
        return Row("agreement", case.label, "skip", detail)
    wanted = answer(op.reference, op.schema, case, op.compare_function, device=device)
    if wanted.skipped:
        return Row("agreement", case.label, "skip", f"not judged: {wanted.skipped}")
    inputs = wanted.inputs()
    with torch.no_grad():
        returned = call(op, inputs)
    outcome = agree.judge(agree.leaves(op.schema, inputs, returned), wanted)
    if outcome.status != "agree":
        return Row(
            "agreement",
            case.label,
            "fail",
            outcome.detail,
            cure_of_values("agreement", outcome.detail, outcome.mismatch),
        )
    what = "what compare makes of the results" if op.compare_function else "values, shapes, dtypes and strides"
    by = "at its own tolerances" if case.atol is not None or case.rtol is not None else "of what is allowed"
    detail = f"{what} agree with the reference run in float64, error {outcome.share:.2g} {by}"
    return Row("agreement", case.label, "pass", f"{detail}; {outcome.detail}" if outcome.detail else detail)


def _gradients(sample: Sample, cases: tuple[Case, ...]) -> list[Row]:
    """The gradients against the reference's in each dtype of the smallest case, then gradcheck."""
    op, label = sample.op, sample.label
    reason = "the op draws random numbers" if op.random else ""
    reason = reason or ("" if sample.takes_gradients else "nothing here takes a gradient")
    floating = any(x.is_floating_point() for x in tensors_in(sample.inputs()))
    if not reason.startswith("the op draws") and floating and not op.differentiable:
        detail = "it is not differentiable: calls work, a backward through them raises"
        write = f"Write @op.backward, or a cell for {op.schema.name}.backward."
        return [Row("gradients", label, "skip", detail, write)]
    if reason:
        return [Row("gradients", label, "skip", f"not judged: {reason}")]
    same = [c for c in cases if c.name == sample.case.name]
    rows = [guarded("gradients", c.label, partial(_agreeing_gradients, op, c, sample.device)) for c in same]
    return [*rows, guarded("gradcheck", label, lambda: gradcheck(sample))]


def _agreeing_gradients(op: Checkable, case: Case, device: str) -> Row:
    wanted = gradient_answer(op.reference, op.schema, case, device=device)
    if wanted.skipped:
        return Row("gradients", case.label, "skip", f"not judged: {wanted.skipped}")
    outcome = agree.judge(pull(op, wanted), wanted)
    if outcome.status != "agree":
        return Row("gradients", case.label, "fail", outcome.detail, cure("gradients", outcome.detail))
    names = ", ".join(o.name for o in wanted.outputs)
    detail = f"{names}: as the reference's vjp in float64, error {outcome.share:.2g} of what is allowed"
    return Row("gradients", case.label, "pass", f"{detail}; second derivatives were not tried")


def device_of(op: Checkable) -> str:
    """Where an op is checked: on a GPU if it has a kernel for one and there is one."""
    on_gpu = any("cuda" in key for key in getattr(op, "slots", {}))
    return "cuda" if on_gpu and torch.cuda.is_available() else "cpu"


@contextmanager
def nothing_learnt(op: Checkable) -> Iterator[None]:
    """An op without cases learns shapes from calls; the calls of a check are none to learn from."""
    definition = getattr(op, "definition", None)
    if definition is None or not hasattr(definition, "on_call"):
        yield
        return
    told, definition.on_call = definition.on_call, unheard
    try:
        yield
    finally:
        definition.on_call = told
