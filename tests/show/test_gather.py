from workbench.report import Check, Row
from workbench.show import gather, text

SAID = "values agree, error {} of what is allowed; nothing else was tried"


def agreement(case, share, status="pass"):
    return Row("agreement", case, status, SAID.format(share))


def test_what_passed_alike_is_told_once_with_the_largest_error():
    rows = [agreement(f"{c} {d}", s) for c, d, s in (
        ("4x128", "float32", "0.016"), ("4x128", "bfloat16", "0.23"), ("one row", "float32", "under 0.01"), ("one row", "bfloat16", "0.25"),
    )]  # fmt: skip
    assert gather.gathered(rows) == [
        Row(
            "agreement",
            "2 cases x 2 dtypes",
            "pass",
            "values agree, largest error 0.25 of what is allowed (one row bf16); nothing else was tried",
        )
    ]
    assert [r.case for r in gather.gathered(rows[:2])] == ["4x128, 2 dtypes"]
    assert [r.case for r in gather.gathered(rows[:3])] == ["3 runs"]
    assert gather.gathered(rows[:1]) == rows[:1]


def test_cases_without_dtypes_are_named_or_counted():
    many = [agreement(f"a rather long name, number {i}", "0.5") for i in range(4)]
    assert gather.gathered(many)[0].case == "4 runs"
    [row] = gather.gathered([agreement("a", "0.5"), agreement("b", "2e-05")])
    assert row.case == "a, b" and row.detail == "values agree, largest error 0.5 of what is allowed (a); nothing else was tried"


def test_what_says_something_else_keeps_its_row():
    rows = [
        agreement("a float32", "0.1"),
        agreement("a float16", "3.1", "fail"),
        agreement("a float64", "4.0", "fail"),
        Row("fake", "a float32", "pass", "shapes agree"),
        Row("fake", "a float16", "pass", "shapes agree; a copy was made"),
    ]
    assert gather.gathered(rows) == rows


def test_the_count_of_a_check_is_of_what_was_run():
    rows = (agreement("a float32", "0.1"), agreement("b float32", "0.2"))
    assert text.check(Check("lab::f", rows)).startswith(
        "lab::f quick check | 2 pass\n  pass  agreement  2 cases, fp32  "
    )
