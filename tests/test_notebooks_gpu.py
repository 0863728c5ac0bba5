"""02_cuda, 03_triton, 04_trust, 05_measure and 06_tune where there is a GPU, without IPython: that machine may have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import live, notebook_promises, notebook_steps

FOLDER = Path(__file__).parents[1] / "notebooks"
OPS = tuple(
    f"lab::{name}"
    for name in ("rmsnorm", "saxpy", "swiglu", "double", "add_t", "rowmax", "to_even", "centre", "cube", "turned")
)


@pytest.fixture(autouse=True)
def gone():
    """The names of the notebooks are free, before and afterwards."""
    for name in OPS:
        live.gone(name)
    yield
    for name in OPS:
        live.gone(name)


@pytest.mark.gpu
def test_the_notebook_on_cuda_keeps_its_promises():
    notebook_promises.cuda(notebook_steps.run(FOLDER / "02_cuda.ipynb"), gpu=True)


@pytest.mark.gpu
def test_the_notebook_on_triton_keeps_its_promises():
    notebook_promises.triton(notebook_steps.run(FOLDER / "03_triton.ipynb"), gpu=True)


@pytest.mark.gpu
@pytest.mark.timeout(600)  # where Inductor has compiled nothing yet, it looks at first what the CPU can do: a minute
def test_the_notebook_on_trust_keeps_its_promises():
    notebook_promises.trust(notebook_steps.run(FOLDER / "04_trust.ipynb"), gpu=True)


@pytest.mark.gpu
@pytest.mark.alone
def test_the_notebook_on_measuring_keeps_its_promises():
    notebook_promises.measure(notebook_steps.run(FOLDER / "05_measure.ipynb"), gpu=True)


@pytest.mark.gpu
@pytest.mark.alone
def test_the_notebook_on_tuning_keeps_its_promises():
    notebook_promises.tune(notebook_steps.run(FOLDER / "06_tune.ipynb"), gpu=True)


def test_cells_run_without_ipython_as_with_it(tmp_path):
    path = tmp_path / "small.ipynb"
    cells = [("markdown", "# One"), ("code", "%load_ext workbench\nx = 2\nprint(x)\nx + 1"), ("markdown", "# Two"),
             ("code", "%%cpp nothing.backward\nvoid f() {}")]  # fmt: skip
    notebook = {
        "cells": [{"cell_type": k, "source": [s], "metadata": {"tags": ["raises-exception"]}} for k, s in cells]
    }
    path.write_text(json.dumps(notebook))
    steps = notebook_steps.run(path)
    assert (steps.text("One"), steps.printed("One")) == ("3", "2\n")
    assert steps.error("Two")["ename"] == "SchemaError"
