from workbench.reports.report import Check, Mismatch, Row
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
    assert (
        row.case == "a, b"
        and row.detail == "values agree, largest error 0.5 of what is allowed (a); nothing else was tried"
    )


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


SWEPT = "{} as the reference's, {}"


def full(*rows):
    return gather.arranged(Check("lab::f", rows, "full"))


def test_a_full_check_tells_first_what_failed_and_last_what_was_not_run():
    shown = full(
        Row("agreement", "a float32", "pass", "agrees"),
        Row("sizes", "past 2**31 bytes", "skip", "not run"),
        Row("sizes", "odd", "fail", "differs"),
        Row("vmap", "a", "pass", "as a loop"),
        Row("sizes", "one", "pass", SWEPT.format("1 input:", "exactly")),
    )
    assert [(r.status, r.check) for r in shown] == [
        ("fail", "sizes"), ("pass", "agreement"), ("pass", "sizes"), ("pass", "vmap"), ("skip", "sizes")
    ]  # fmt: skip
    quick = Check("lab::f", (Row("a", "", "pass"), Row("b", "", "fail")))
    assert gather.arranged(quick) == list(quick.rows), "a short one keeps its order"


def test_sweeps_that_passed_are_one_row_with_all_their_inputs():
    shown = full(
        Row("sizes", "one", "pass", SWEPT.format("3 inputs:", "exactly")),
        Row("values", "NaN", "pass", SWEPT.format("1 input:", "exactly")),
        Row("sizes", "odd", "pass", SWEPT.format("1 input:", "error 0.3 of what is allowed")),
        Row("sizes", "two", "pass", SWEPT.format("2 inputs:", "error 0.02 of what is allowed")),
        Row("sizes", "0-dim", "pass", SWEPT.format("1 input:", "exactly; 1 that both refuse (no)")),
        Row("sizes", "one (cuda)", "pass", SWEPT.format("3 inputs:", "exactly")),
    )
    assert shown == [
        Row("sizes", "one, odd, two", "pass", SWEPT.format("6 inputs:", "largest error 0.3 of what is allowed (odd)")),
        Row("sizes", "0-dim", "pass", SWEPT.format("1 input:", "exactly; 1 that both refuse (no)")),
        Row("sizes", "one (cuda)", "pass", SWEPT.format("3 inputs:", "exactly")),
        Row("values", "NaN", "pass", SWEPT.format("1 input:", "exactly")),
    ]


def test_inputs_with_commas_in_their_names_and_many_inputs():
    said = SWEPT.format("1 input:", "exactly")
    [row] = full(*(Row("layouts", case, "pass", said) for case in ("sliced, with an offset", "expanded")))
    assert row.case == "sliced, with an offset; expanded"
    [row] = full(*(Row("layouts", f"a rather long name, number {i}", "pass", said) for i in range(9)))
    assert row.case == "9 kinds" and row.detail.startswith("9 inputs: ")


def test_one_reason_for_what_was_not_run_is_told_once():
    shown = full(
        Row("dtypes", "float64", "skip", "f has no form for float64: x is float64"),
        Row("dtypes", "bfloat16", "skip", "f has no form for bfloat16: x is bfloat16"),
        Row("dtypes", "mixed", "skip", "the reference refuses it"),
        Row("CUDA graph", "odd float32", "skip", "not run: no GPU here"),
        Row("streams", "odd float32", "skip", "not run: no GPU here"),
    )
    assert [(r.check, r.case) for r in shown] == [
        ("dtypes", "float64, bfloat16"), ("dtypes", "mixed"), ("CUDA graph, streams", "odd float32")
    ]  # fmt: skip


def test_what_fails_is_told_together_only_if_the_same_smallest_input_does():
    said = "goes out of bounds: {}smallest found: x float32[1, 1]: writes past the end"
    shown = full(
        Row("sizes", "one", "fail", said.format("2 of 3 inputs fail, "), "Guard.", Mismatch("out", (4,), 1, 4, 0, ())),
        Row("sizes", "two", "fail", said.format(""), "Guard.", Mismatch("out", (9,), 1, 9, 0, ())),
        Row("sizes", "odd", "fail", said.format("1 of 4 inputs fail, ").replace("[1, 1]", "[1, 3]"), "Guard."),
    )
    assert [(r.case, r.detail) for r in shown] == [
        ("one, two", said.format("3 of 4 inputs fail, ")),
        ("odd", said.format("1 of 4 inputs fail, ").replace("[1, 1]", "[1, 3]")),
    ]
    assert shown[0].mismatch.total == 9, "the largest picture"
    rows = tuple(Row("vmap", case, "fail", "differs") for case in ("one", "two"))
    assert full(*rows) == list(rows)
