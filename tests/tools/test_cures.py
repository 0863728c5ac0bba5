"""docs/cures.md is what the table says, and the table covers what people meet."""

from __future__ import annotations

import re

import pytest

from tools.cures import PAGE
from workbench.check.cures import TABLE, cure, cure_of_values, in_language, page
from workbench.reports.report import Mismatch

SYMPTOMS = (
    "shape mismatch only when compiled", "wrong arity against the schema", "undeclared mutation", "missing fake",
    "graph break", "failed gradcheck", "an op that Inductor cannot fuse", "undefined symbol", "missing batching rule",
    "nothing saved for backward", "a fake that does not take SymInts",
)  # fmt: skip


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "python tools/cures.py writes it anew"


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_what_people_meet_is_there(symptom):
    assert any(c.symptom.startswith(symptom) for c in TABLE)
    assert f"| {symptom}" in page()


def test_entries_are_short_and_reachable():
    for i, c in enumerate(TABLE):
        re.compile(c.words)
        assert c.cure[-1] in ".?" and len(c.cure) < 135, c.cure
        assert (c.symptom and c.symptom[0].islower()) or c.symptom.startswith(("NaN", "Inductor")), c.symptom
        before = [e for e in TABLE[:i] if e.about == c.about]
        assert not any(e.words == "." for e in before), f"{c.symptom}: an entry above takes everything"


def test_a_failure_gets_the_cure_of_its_kind(monkeypatch):
    assert cure("overrun", "writes past the end of out: flat element 20 of 20").startswith("Guard the last block")
    assert "Guard" not in in_language(cure("overrun", "reads past the end of b"), "cpp")
    assert "the loop's bound (`<`, not `<=`)" in in_language(cure("crash", "it died"), "cpp")
    assert in_language(cure("crash", "it died"), "triton").startswith(
        "Most often an index out of bounds. Give each load"
    )
    monkeypatch.setattr("workbench.gpu.present", lambda: False)
    assert in_language(cure("hang", "no end"), "triton").endswith("too many: a smaller case, or bench=True.")
    assert "interpreter" not in in_language(cure("hang", "no end"), "cuda")
    assert in_language(cure("crash", "it died"), "cuda") == cure("crash", "it died")
    assert cure("overrun", "writes 4 bytes before the start of out").startswith("An index is below 0")
    assert cure("mismatch", "out: 1 of 4 elements differ, most at [0]: 0 where nan was wanted").startswith(
        "Comparisons with NaN"
    )
    assert cure("metadata", "RuntimeError: Cannot access data_ptr of a fake tensor") == (
        "There is no fake: give the op a reference with wb.op, or @op.fake."
    )
    assert cure("compiled, dynamic shapes", "5 graphs for 5 sizes: it is compiled again at each").startswith(
        "A fake must work with symbolic"
    )
    assert cure("nobody", "knows") == ""


def test_advice_on_values_depends_on_how_far_off_they_are():
    said = "out: 1 of 4 elements differ, most at [0]: 2 where 1 was wanted"

    def off(got: float) -> Mismatch:
        return Mismatch("out", (4,), 1, 4, 0, (((0,), got, 1.0),))

    assert cure_of_values("mismatch", said, off(1.02)).startswith("Is another rounding meant?")
    assert cure_of_values("mismatch", said, off(2)).startswith("No rounding is that far off")
    assert cure_of_values("layouts", said, off(2)).startswith("Read each dimension by its own stride")
    nan = "out: 1 of 4 elements differ, most at [0]: 0 where nan was wanted"
    assert cure_of_values("mismatch", nan, off(float("nan"))).startswith("Comparisons with NaN")
    assert cure_of_values("layouts", "out has strides (5, 1), the reference gives (1, 4)", None).startswith(
        "Write the layout"
    )
