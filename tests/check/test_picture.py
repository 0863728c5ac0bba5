"""Where an output differs, as data."""

from __future__ import annotations

import torch

from workbench.check.picture import folded, mismatch


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
