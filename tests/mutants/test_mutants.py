"""A full check finds every mutant, and says nothing against the ops that they were made from."""

from __future__ import annotations

import re

import pytest

import workbench as wb
from tests.live import gone
from tests.mutants.ops import OPS, Correct
from tests.mutants.table import MUTANTS, Mutant
from tests.mutants.triton_ops import TRITON_OPS
from tests.mutants.triton_table import TRITON_MUTANTS
from workbench.check import full, quick
from workbench.judge import tryout
from workbench.trial import allocator

ALL_OPS = {**OPS, **TRITON_OPS}
ALL = (*MUTANTS, *TRITON_MUTANTS)
# The first of each op and check in C++; Triton's interpreter takes seconds for one.
QUICK = (*{(m.op, m.check): m for m in reversed(MUTANTS)}.values(), TRITON_MUTANTS[0])


@pytest.fixture(autouse=True, scope="module")
def guarded():
    assert allocator.wait()


def made(name: str, correct: Correct, **instead: object):
    """The op, defined afresh under one name, so that its launchers come from the store."""
    gone(f"mutants::{name}")
    op = wb.op(f"mutants::{name}", **correct.options)(correct.reference)
    op.cases(dtypes=correct.dtypes)(correct.cases)
    for slot, kernel in {**correct.slots, **instead}.items():
        if slot == "fake":
            op.fake(kernel)
        elif slot == "vmap":
            op.vmap(kernel)
        elif callable(kernel):
            op.backward(kernel) if slot == "backward" else op.kernel("cpu")(kernel)
        elif correct.cell == "triton":
            wb.triton(op, kernel)
        else:
            wb.cpp(f"mutants::{name}.{slot}" if slot != "forward" else op, kernel)
    return op


def mutated(m: Mutant) -> dict[str, object]:
    if m.instead:
        return m.instead
    text = ALL_OPS[m.op].slots[m.slot]
    for old, new in m.changes:
        assert old in text, f"{m.name}: {old!r} is not in the cell of {m.op}"
        text = text.replace(old, new)
    return {m.slot: text}


def checked(op, only=()):
    tries = [*tryout.tries_of(op), *tryout.tries_of(op, "backward")]
    return full.check(op, lambda: tries, lambda: quick.check(op, "full"), device=quick.device_of(op), only=only)


@pytest.mark.parametrize(
    "m",
    [pytest.param(m, id=f"{m.op}: {m.name}", marks=() if m in QUICK else pytest.mark.slow) for m in ALL],
)
def test_every_mutant_is_found(m):
    op = made(m.op, ALL_OPS[m.op], **mutated(m))  # its own trial must not have found it
    asked = {"fake": "metadata"}.get(m.check, m.check)
    for _ in range(8 if m.check == "determinism" else 1):  # on a loaded machine threads may never be at work together
        report = checked(op, ("sizes", "layouts", asked) if asked in full.HERE else (asked,))
        if not report.ok:
            break
    found = [r for r in report.rows if r.status == "fail" and r.check == m.check and r.case.startswith(m.about)]
    assert found, f"no {m.check} row fails:\n{report}"
    assert any(re.search(m.says, r.detail) for r in found), str(report)
    assert all(r.cure for r in found), f"no cure: {[r.detail for r in found]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_OPS)
def test_no_false_alarm_on_a_correct_op(name):
    op = made(name, ALL_OPS[name])
    report = checked(op)
    assert report.ok, "\n".join(f"{r.check} | {r.case} | {r.detail}" for r in report.rows if r.status == "fail")
    assert sum(r.status == "pass" for r in report.rows) > 20


def test_the_suite_is_what_it_is_said_to_be():
    kinds = {"Triton": TRITON_MUTANTS, "Python": [m for m in MUTANTS if m.instead]}
    kinds["C++"] = [m for m in MUTANTS if not m.instead]
    assert {kind: len(found) for kind, found in kinds.items()} == {"C++": 51, "Python": 12, "Triton": 33}
    assert len({(m.op, m.name) for m in ALL}) == len(ALL) == 96
    assert not OPS.keys() & TRITON_OPS.keys()
    assert {m.op for m in ALL} == ALL_OPS.keys(), "an op without a mutant"
