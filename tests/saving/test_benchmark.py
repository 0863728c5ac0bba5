"""The benchmark of a package: a mutating op gets its inputs fresh for each call."""

from __future__ import annotations

import runpy
import sys
import types

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.saving import ops


@pytest.fixture
def bench(namespace, tmp_path, monkeypatch):
    """What benchmarks/bench.py of a package defines; the package itself, which is not built here, is stood in for."""

    def scale_(x: Tensor, k: float = 1e30) -> None:
        x.mul_(k)

    op = ops.define(namespace, "scale_", scale_, mutates="x")
    wb.save([op, ops.scale(namespace)], tmp_path / "b_ops")
    for name in ("b_ops", "test_scale_", "test_scale", "judge", "judge.inputs"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    from workbench.inputs import fresh

    sys.modules["judge.inputs"].fresh = fresh
    monkeypatch.setattr(sys, "argv", ["bench.py", "cpu", "0.01"])
    return runpy.run_path(str(tmp_path / "b_ops" / "benchmarks" / "bench.py")), op


def test_each_call_of_a_mutating_op_sees_the_inputs_as_they_were(bench):
    found, op = bench
    [case, *_] = op.case_list()
    first, seen = case.bound(op.schema)["x"].clone(), []

    def call(x, k):
        seen.append(x.clone())
        x.mul_(k)

    module = types.SimpleNamespace(SCHEMA=op.schema, OP=types.SimpleNamespace(definition=op.definition))
    assert found["time_us"](call, case, module) > 0
    assert len(seen) > 3 and all(torch.equal(x, first) for x in seen)
    assert "outside the time that is told" in found["__doc__"]


def test_one_without_mutation_is_timed_in_runs(namespace, tmp_path):
    wb.save([ops.scale(namespace)], tmp_path / "b_ops")
    text = (tmp_path / "b_ops" / "benchmarks" / "bench.py").read_text()
    assert "blocked_autorange" in text and "time_of_copies_us" not in text and "import statistics" not in text
