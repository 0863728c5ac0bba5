import math

import pytest
import samples

from workbench.reports.report import Mismatch, Outcome
from workbench.show import pattern, words


@pytest.mark.parametrize(
    ("seconds", "digits", "shown"),
    [
        (0.052, 2, "52 ms"),
        (0.152, 2, "152 ms"),
        (41.2e-6, 3, "41.2 us"),
        (41.2e-6, 2, "41 us"),
        (9.8e-3, 3, "9.8 ms"),
        (0.9996, 2, "1 s"),
        (999.6e-6, 3, "1 ms"),
        (5e-9, 2, "5 ns"),
        (1.24, 2, "1.2 s"),
        (25.3, 2, "25 s"),
        (125, 2, "2 min 5 s"),
        (120, 2, "2 min"),
        (1e-6, 2, "1 us"),
        (0.001, 2, "1 ms"),
    ],
)
def test_a_duration_has_the_unit_that_fits(seconds, digits, shown):
    assert words.duration(seconds, digits) == shown


def test_micro_can_be_the_sign():
    assert words.duration(41e-6, micro="µs") == "41 µs"


def test_counts_are_plural_and_separated():
    assert words.count(1, "case") == "1 case"
    assert words.count(3840, "element") == "3,840 elements"
    assert words.count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.6, "0.6"), (0.04, "0.04"), (0.001, "under 0.01"), (0.97, "0.97"), (0.999, "0.99"), (12.3, "12")],
)
def test_a_share_below_the_limit_is_never_rounded_up_to_it(value, shown):
    assert words.share(value) == shown


def test_values_get_the_digits_that_tell_them_apart():
    assert words.values(math.nan, 0.8123) == ("nan", "0.8123")
    assert words.values(1.00001, 1.0) == ("1.00001", "1.00000")
    assert words.values(-4.1320335340001, -4.1320335340002) == ("-4.1320335340001", "-4.1320335340002")
    assert words.values(2.5, 2.5) == ("2.5000", "2.5000")  # complex numbers of one magnitude
    assert words.values(7, 1234) == ("7", "1,234")
    assert words.values(1.5e9, -math.inf) == ("1.5000e+09", "-inf")


def test_dtypes_are_short():
    assert [words.dtype(d) for d in ("bfloat16", "torch.float16", "float8_e4m3fn", "int64")] == [
        "bf16",
        "fp16",
        "fp8 e4m3",
        "int64",
    ]


def test_what_a_set_of_runs_covered():
    assert words.runs([Outcome("a", "", "agree")]) == "1 case"
    assert words.runs([Outcome("a", "", "agree"), Outcome("b", "float32", "agree")]) == "2 cases"
    assert words.runs([Outcome(c, d, "agree") for c in "ab" for d in ("x", "y", "z")], "×") == "2 cases × 3 dtypes"
    assert (
        words.runs([Outcome("a", "x", "agree"), Outcome("a", "y", "agree"), Outcome("b", "", "agree")])
        == "3 runs of 2 cases"
    )


def test_long_text_keeps_its_ends_and_says_what_is_left_out():
    shown = words.clip("\n".join(str(i) for i in range(1000)), lines=8)
    assert shown == "0\n1\n2\n3\n4\n5\n... 992 lines left out ...\n998\n999"
    assert words.clip("x" * 5000, characters=100) == f"{'x' * 75}\n... 4,900 characters left out ...\n{'x' * 25}"
    assert words.clip("short\n") == "short"


def test_the_last_columns_of_every_block_are_recognised():
    assert pattern.find(samples.never_written()) == pattern.Pattern("the last 3 of every 32 columns", columns=32)


def _map(rows, columns, wrong):
    cells = tuple(tuple(float(wrong(r, c)) for c in range(columns)) for r in range(rows))
    n = int(sum(map(sum, cells)))
    return Mismatch("out", (rows, columns), n, rows * columns, 0, (), cells)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda r, c: c >= 61, "the last 3 columns"),
        (lambda r, c: c == 63, "the last column"),
        (lambda r, c: r == 7, "the last row"),
        (lambda r, c: r % 4 == 0, "the first of every 4 rows"),
        (lambda r, c: c in (3, 4, 9), "columns 3-4, 9"),
        (lambda r, c: c == 5, "column 5"),
        (lambda r, c: True, ""),
        (lambda r, c: (r * 7 + c) % 13 == 0, ""),
    ],
)
def test_patterns_are_named_only_where_they_hold(wrong, said):
    assert pattern.find(_map(8, 64, wrong)).said == said


def test_elements_of_one_dimension_are_no_columns_and_two_are_no_pattern():
    found = Mismatch("out", (5,), 4, 5, 0, (), ((1.0, 1.0, 0.0, 1.0, 1.0),))
    assert pattern.caption(found) == "out, 5: 4 of 5 elements differ, in elements 0-1, 3-4"


def test_a_folded_map_gets_no_pattern():
    cells = ((0.0, 1.0), (0.0, 1.0))
    mismatch = Mismatch("out", (200, 200), 20000, 40000, 0, (), cells)
    assert pattern.folded(mismatch)
    assert pattern.find(mismatch) == pattern.Pattern()
    assert pattern.caption(mismatch) == "out, 200 x 200: 20,000 of 40,000 elements differ"


def test_a_picture_of_another_input_than_the_sentence_names_its_own():
    plain = Mismatch("out", (7, 19), 54, 133, 0, (((0, 1), 1.0, 2.0),))
    assert pattern.caption(plain) == "out, 7 x 19: 54 of 133 elements differ"
    other = Mismatch("out", (7, 19), 54, 133, 0, (((0, 1), 1.0, 2.0),), on="x float32[7, 19]")
    assert pattern.caption(other) == "out, 7 x 19, on x float32[7, 19]: 54 of 133 elements differ"
    why = Mismatch("out", (4,), 4, 4, 0, (((0,), 1.0, 2.0),), because="it adds to what was there")
    assert words.differing(why) == "4 of 4 elements differ: it adds to what was there"
