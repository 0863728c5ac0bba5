"""A package is clean by the rules that it states itself: ruff with its pyproject.toml, mypy at its defaults."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.saving import ops

HALVE = """//! n = x.numel()
template <typename T> void halve_(T* x, double k, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] = T(x[i] * k); }
"""


@pytest.fixture
def package(namespace, tmp_path):
    """Forwards in C++, backwards in C++ and in Python, an op that mutates, one that calls another, one that takes a dtype."""

    def halve_(x: Tensor, k: float = 0.5) -> None:
        x.mul_(k)

    def twice(x: Tensor) -> Tensor:
        return scale(scale(x))

    def cast(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        return x.to(dtype)

    def shift_backward(grad_out):
        return grad_out

    scale, shift, normed = ops.scale(namespace), ops.shift(namespace), ops.normed(namespace)
    shift.backward(shift_backward)
    halved = ops.define(namespace, "halve_", halve_, mutates="x")
    wb.cpp(halved, HALVE)
    more = [
        ops.define(namespace, "twice", twice, lambda t: iter([t(4, 8)])),
        ops.define(namespace, "cast", cast, lambda t: iter([t(4, 8)])),
    ]
    wb.save([scale, shift, normed, halved, *more], tmp_path / "shop_ops")
    return tmp_path / "shop_ops"


def said(package, *words) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=package,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.stdout


def test_ruff_finds_nothing(package):
    assert said(package, "ruff", "check", "--no-cache") == "All checks passed!\n"


@pytest.mark.slow
def test_mypy_finds_nothing(package):
    assert "Success: no issues found in " in said(package, "mypy", "src/shop_ops")


def test_triton_says_nothing_of_its_types():
    """mypy would have an error for each import of it."""
    from workbench.saving import templates

    shared = {"name": "o", "distribution": "o", "version": "1", "native": False, "python": (3, 10), "oldest": (2, 11), "torch_build": "torch",
              "license": "MIT", "description": '"o"', "dependencies": [], "more": "", "march": "", "width": 160, "typed": ["src/o/_f_triton.py"]}  # fmt: skip
    tomllib = pytest.importorskip("tomllib")
    without, beside = (
        tomllib.loads(templates.render("project/pyproject.toml.j2", triton=t, **shared)) for t in (False, True)
    )
    assert "mypy" not in without["tool"]
    assert beside["tool"]["mypy"]["overrides"] == [{"module": ["triton.*"], "ignore_missing_imports": True}]
    assert beside["tool"]["ruff"]["lint"]["per-file-ignores"]["src/o/_f_triton.py"] == ["E4", "E7", "F", "I"]
