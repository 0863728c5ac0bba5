"""kernels/matmul: the C++ agrees on sizes that no block divides, in every dtype and in several configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from workbench.judge.configured import Tried
from workbench.tune.space import Candidate

FOLDER = Path(__file__).parents[1] / "kernels" / "matmul"
ROUNDING = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(scope="module")
def matmul():
    live.gone("lab::matmul")
    wb.load(FOLDER / "op.py")
    [op] = wb.load(FOLDER / "matmul.cpp")
    yield op
    live.gone(op.qualname)


def test_it_agrees(matmul):
    trial = matmul.slots["forward", "cpu"].trial
    assert {(o.case, o.status) for o in trial.outcomes} == {
        (case, "agree") for case in ("65x130", "square", "a row", "long sums")
    }
    assert len(trial.outcomes) == 12 and matmul.versions[1].title.startswith("Blocks of KC columns of A")


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 257, 31), (97, 513, 65), (200, 64, 100), (3, 0, 4), (0, 5, 6)])
def test_sizes_that_no_block_divides(matmul, sizes, dtype):
    m, k, n = sizes
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    wanted = a.double() @ b.double()
    scale = max(1.0, wanted.abs().max().item() if wanted.numel() else 1.0)
    torch.testing.assert_close(matmul(a, b).double() / scale, wanted / scale, rtol=0, atol=ROUNDING[dtype])
    assert matmul(a, b).dtype is dtype


def test_transposed_inputs_and_gradients(matmul):
    a, b = torch.randn(40, 30).t(), torch.randn(50, 40).t()
    torch.testing.assert_close(matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    for got, want in zip(live.gradients(matmul, a, b), live.gradients(torch.mm, a, b), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match=r"require b.shape\[0\] == K is not met"):
        matmul(torch.ones(2, 3), torch.ones(4, 5))


@pytest.mark.parametrize("config", [{"MR": 12, "NV": 2, "KC": 512, "MC": 192}, {"MR": 8, "NV": 1, "KC": 256, "MC": 96}])
def test_other_configurations_agree_too(matmul, config):
    version = matmul.slots["forward", "cpu"]
    for case in matmul.case_list():
        if case.dtype is torch.float32:
            tried = Tried(matmul, version, case)
            space, one = tried.space(), Candidate(config)
            assert [failed for _, failed in space.build([one])] == [None]
            [(said, _)] = tried.check(space, [one])
            assert said == "agree"


def test_the_space_is_what_the_cell_says(matmul):
    tried = Tried(matmul, matmul.slots["forward", "cpu"], matmul.case_list()[0])
    space = tried.space()
    assert len(space.candidates) == 24 and not any(map(space.ruled_out, space.candidates))
