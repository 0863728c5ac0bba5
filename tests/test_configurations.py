"""The trial of an autotuned kernel in each of its configurations: steps that are added, and what they come to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from workbench.judge.configurations import folded, in_turn
from workbench.reports.report import Outcome
from workbench.trial import Result, Step

SMALL: Any = SimpleNamespace(values={"n": 1})
LARGE: Any = SimpleNamespace(values={"n": 2})


def tried(e: Any, status: str, *chosen: str, detail: str = "") -> tuple:
    given = "ok" if status in ("agree", "mismatch") else status
    result = Result(0, "case", given, detail, chosen=chosen)
    return ("forward", e), result, Outcome("case", "float32", status, detail=detail)


def test_the_case_of_a_turn_is_tried_once_more_for_each_further_configuration():
    kernel: Any = SimpleNamespace(slot="backward", turns=lambda cases: {1: 3} if cases[1] == {"n": 1} else {})
    steps = [Step("f", case="large"), Step("b", case="large"), Step("f", case="small"), Step("b", case="small")]
    judged = [("forward", None), ("backward", LARGE), ("forward", None), ("backward", SMALL)]
    got, told = in_turn(kernel, [LARGE, SMALL], steps, judged)
    assert [(s.op, s.case, s.turn) for s in got] == [
        ("f", "large", None), ("b", "large", None), ("f", "small", None), ("b", "small", 0),
        ("b", "small", 1), ("b", "small", 2),
    ]  # fmt: skip
    assert told == [*judged, judged[3], judged[3]]


def test_a_case_that_agrees_in_all_configurations_is_one_outcome():
    outcomes, notes = folded(
        [tried(LARGE, "agree"), tried(SMALL, "agree", "k with B=1"), tried(SMALL, "agree", "k with B=2")]
    )
    assert [(o.status, o.how) for o in outcomes] == [("agree", ""), ("agree", "")] and notes == ()


def test_the_configuration_that_goes_wrong_is_named():
    outcomes, _ = folded(
        [tried(SMALL, "agree", "k with B=1"), tried(LARGE, "agree"), tried(SMALL, "mismatch", "k with B=2")]
    )
    assert [(o.status, o.how) for o in outcomes] == [("mismatch", "k with B=2"), ("agree", "")]


def test_one_that_does_not_fit_is_a_note_and_none_that_fits_an_error():
    first = tried(SMALL, "skip", "k with B=1", detail="k with B=1 does not fit: too large")
    outcomes, notes = folded([first, tried(SMALL, "agree", "k with B=2")])
    assert [o.status for o in outcomes] == ["agree"] and notes == ("k with B=1 does not fit: too large",)
    outcomes, _ = folded([first, tried(SMALL, "skip", "k with B=2", detail="k with B=2 does not fit: large")])
    assert [(o.status, o.detail) for o in outcomes] == [
        ("error", "no configuration fits: k with B=2 does not fit: large")
    ]


def test_steps_that_were_not_reached_say_nothing():
    crashed = tried(SMALL, "crash", "k with B=2", detail="an illegal address")
    outcomes, notes = folded([tried(SMALL, "agree", "k with B=1"), crashed, tried(SMALL, "skip", detail="not reached")])
    assert [(o.status, o.how) for o in outcomes] == [("crash", "k with B=2")] and notes == ()
