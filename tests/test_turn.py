"""Verbs, cells and watches take turns: what is timed or checked is what was installed when it began."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE
from workbench.check import quick
from workbench.errors import WorkbenchError
from workbench.judge.lending import Lent
from workbench.reports.report import Check
from workbench.turn import in_turn, turn

ZERO = torch.zeros(3)


def adding(value: float) -> str:
    return SCALE.replace("x[i] * k", f"x[i] * k + {value}f")


def edited(scale: wb.Op) -> threading.Thread:
    """A cell that runs beside: its text was built before, so that it is installed at once if nothing holds it up."""
    for value in (1e-30, 0.0):
        wb.cpp(scale, adding(value))
    return threading.Thread(target=lambda: wb.cpp(scale, adding(1e-30)))


def is_edited(scale: wb.Op) -> bool:
    return scale(ZERO).tolist() == pytest.approx([1e-30] * 3, rel=1e-3, abs=0)


@pytest.mark.slow
def test_a_version_that_comes_while_others_are_timed_runs_afterwards(monkeypatch):
    """A bench lends the slot to former versions, and puts back what was there when it began."""
    scale = live.scale()
    edit, enter = edited(scale), Lent.enter

    def entered(lent: Lent) -> None:
        enter(lent)
        if edit.ident is None:
            edit.start()
            edit.join(1)

    monkeypatch.setattr(Lent, "enter", entered)
    scale.bench(against=[1], backward=False, budget=0.2)
    edit.join(60)
    assert scale.runs().number == 3 and is_edited(scale)


def test_a_check_speaks_of_the_versions_that_it_saw(monkeypatch):
    scale = live.scale()
    edit, usual = edited(scale), quick.check

    def check(*args: object) -> Check:
        edit.start()
        edit.join(1)
        return usual(*args)

    monkeypatch.setattr(quick, "check", check)
    scale.check()
    checked = scale.checked
    edit.join(60)
    assert checked[0] == (("forward", "cpu"), 2) and scale.installed()[0] == (("forward", "cpu"), 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda op: op.restore(0),
        lambda op: op.cases(lambda t: iter([(t(2, 2), 2.0)])),
        lambda op: op.compare(lambda x, k, out: out),
        lambda op: op.kernel("cpu")(lambda x, k=2.0: x * k),
        lambda op: wb.op(op.qualname)(op.reference),
    ],
)
def test_what_changes_an_op_waits_for_its_turn(change):
    scale = live.scale()
    thread = threading.Thread(target=change, args=(scale,))
    with turn:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()


def test_a_button_says_that_other_work_goes_on(monkeypatch):
    """It runs in the thread that a button which stops that work needs, too."""
    monkeypatch.setattr(sys.modules["workbench.op"], "BUTTON_S", 0.05)  # `workbench.op` is the decorator
    scale, said = live.scale(), []
    wb.cpp(scale, SCALE)

    def press():
        try:
            scale._restored(0)
        except WorkbenchError as error:
            said.append(str(error))

    thread = threading.Thread(target=press)
    with turn:
        thread.start()
        thread.join(10)
    assert said == ["v0 is not restored: other work on ops goes on. Press again when it has ended"]
    assert scale.runs().number == 1
    scale._restored(0)
    assert scale.runs().number == 0


def test_a_turn_within_a_turn_and_what_the_function_gives():
    @in_turn
    def inner(x: int) -> int:
        """One more."""
        return x + 1

    assert in_turn(lambda: inner(1) + inner(2))() == 5 and inner.__doc__ == "One more."
