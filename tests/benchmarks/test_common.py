import itertools
import json
import timeit

import pytest

from benchmarks import common
from benchmarks.common import Figure


def test_a_figure_holds_below_or_above_what_is_wanted():
    assert Figure("a", 0.15, "s", wanted=0.15).holds
    assert not Figure("a", 0.16, "s", wanted=0.15).holds
    assert Figure("a", 121, "x", wanted=120, at_least=True).holds
    assert not Figure("a", 119, "x", wanted=120, at_least=True).holds
    assert Figure("a", 1e9, "s").holds


def test_table_is_aligned_and_names_what_was_missed():
    text = common.table(
        "Edits",
        [
            Figure("raw edit", 0.0812, "s", wanted=0.15),
            Figure("faster than load_inline", 80, "x", wanted=120, at_least=True, note="noisy"),
            Figure("load_inline", 25.13, "s"),
        ],
    )
    assert text.splitlines() == [
        "Edits",
        "",
        "                         measured     wanted",
        "raw edit                 0.0812 s  <= 0.15 s",
        "faster than load_inline      80 x   >= 120 x  MISSED  noisy",
        "load_inline                25.1 s",
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0812, "0.0812 s"), (25.13, "25.1 s"), (312.4, "312 s"), (1234.5, "1234 s")]
)
def test_numbers_have_three_figures(value, shown):
    assert common.number(value, "s") == shown


def test_slowdown_compares_the_ends():
    assert common.slowdown([1, 1, 1, 9, 9, 2, 2, 2], 3) == 2
    with pytest.raises(ValueError, match="no two windows"):
        common.slowdown([1, 2, 3], 2)


def test_interleaved_takes_turns_and_divides_by_the_number_of_calls():
    order = []
    ticks = itertools.count(0, 8)
    timers = {n: timeit.Timer(lambda n=n: order.append(n), timer=lambda: next(ticks)) for n in "ab"}
    assert common.interleaved(timers, rounds=2, number=4) == {"a": [2, 2], "b": [2, 2]}
    assert "".join(order) == "ab" + "aaaabbbb" * 2


def test_ratio_is_the_median_of_the_rounds():
    assert common.ratio({"a": [2, 30, 6], "b": [1, 3, 3]}, "a", "b") == 2
    with pytest.raises(ValueError, match="shorter|longer"):
        common.ratio({"a": [1], "b": [1, 2]}, "a", "b")


def test_results_name_the_machine_and_the_versions(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    path = common.write("x", [Figure("raw edit", 0.1, "s", wanted=0.15)], {"raw": [0.1]})
    kept = json.loads(path.read_text())
    assert kept["figures"][0] == {
        "what": "raw edit", "value": 0.1, "unit": "s", "wanted": 0.15, "at_least": False, "note": "", "holds": True,
    }  # fmt: skip
    assert kept["machine"]["cores"] >= 1
    assert kept["versions"]["torch"].startswith("2.")
    assert kept["samples"] == {"raw": [0.1]}


def test_a_child_that_fails_shows_its_error(tmp_path):
    with pytest.raises(SystemExit, match="No module named benchmarks.nothing"):
        common.child("benchmarks.nothing", "x")


def test_memory_in_use_is_a_plausible_number():
    assert 5 < common.resident_mb() < 100_000
