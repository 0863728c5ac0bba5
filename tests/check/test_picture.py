"""Where an output differs, as data."""

from __future__ import annotations

import torch

from workbench.check.picture import folded, histogram, mismatch


def test_small_outputs_are_drawn_as_they_are():
    assert folded(torch.tensor([[True, False], [False, False]])) == ((1.0, 0.0), (0.0, 0.0))
    assert folded(torch.tensor([True, False, True])) == ((1.0, 0.0, 1.0),)
    assert folded(torch.tensor(True)) == ((1.0,),)
    assert folded(torch.zeros(0, 4, dtype=torch.bool)) == ()


def test_large_outputs_are_folded_into_shares():
    wrong = torch.zeros(2, 64, 192, dtype=torch.bool)
    wrong[1, :, 190] = True
    cells = folded(wrong)
    assert (len(cells), len(cells[0])) == (64, 96)
    assert cells[63][95] == 0.5 and cells[32][95] == 0.5 and cells[31][95] == 0.0 and cells[63][94] == 0.0


def test_worst_first_with_non_finite_ahead():
    wanted = torch.zeros(3, 4)
    got = wanted.clone()
    got[0, 1], got[1, 2], got[2, 3] = 5.0, float("nan"), -7.0
    found = mismatch("y", got, wanted, got.isnan() | (got != wanted), 1)
    assert [w[0] for w in found.worst] == [(1, 2), (2, 3), (0, 1)]
    assert found.worst[1][1:] == (-7.0, 0.0)
    assert (found.output, found.count, found.total, found.unwritten) == ("y", 3, 12, 1)


def test_how_large_the_errors_are():
    off = torch.tensor([0.0, 0.05, 0.002, 0.002, float("inf")])
    assert histogram(off, torch.tensor([1.0, 2.0, 2.0, 2.0, 1.0])) == ((None, 1), (-3, 2), (-2, 1), (99, 1))
    assert histogram(torch.tensor([3.0]), torch.tensor([0.0])) == ((3, 1),), "against 0 any error is large"


def test_nan_and_infinity_where_they_are_wanted_are_no_error():
    nan, inf = float("nan"), float("inf")
    got, wanted = torch.tensor([nan, inf, 3.0, 4.0, nan]), torch.tensor([nan, inf, nan, 4.0, 5.0])
    found = mismatch("out", got, wanted, torch.tensor([False, False, True, False, True]))
    assert found.errors == ((0.0, 0.0, 1.0, 0.0, 1.0),)
    assert found.histogram == ((None, 3), (99, 2))


def test_errors_are_a_map_of_their_own_and_the_worst_say_what_went_in():
    x, w = torch.arange(8.0).view(2, 4), torch.arange(4.0) + 10
    wanted = x * w
    got = wanted.clone()
    got[1, 2] += 4.0
    got[0, 1] -= 1.0
    found = mismatch(
        "out",
        got,
        wanted,
        got != wanted,
        inputs={"x": x, "w": w, "k": 2.0, "big": torch.zeros(3, 2, 4), "turned": torch.zeros(9, 9)},
    )
    assert found.errors == ((0.0, 0.25, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0))
    assert found.inputs == ("x[1, 2]=6, w[2]=12", "x[0, 1]=1, w[1]=11")
    assert mismatch("out", got, wanted, got != wanted).inputs == ()


def test_errors_of_large_outputs_are_the_largest_of_each_cell():
    wanted = torch.zeros(128, 192)
    got = wanted.clone()
    got[127, 190], got[126, 191] = 1.0, 2.0
    cells = mismatch("out", got, wanted, got != wanted).errors
    assert (len(cells), len(cells[0])) == (64, 96) and cells[63][95] == 1.0 and sum(map(sum, cells)) == 1.0
