"""Inputs on which a reference ends the process: a fork finds them, and the notebook lives."""

from __future__ import annotations

import os
import signal
import time

import torch

import workbench as wb
from workbench.case import case
from workbench.check import full, quick
from workbench.check.full import apart
from workbench.judge import tryout


def ints(n: int):
    return case(str(n), torch.randn(2), torch.arange(n))


def dies_without_indices(c) -> None:
    n = c.args[1].numel()
    if n == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    if n == 1:
        os._exit(3)
    if n == 2:
        raise ValueError("an exception is no death")
    if n == 3:
        time.sleep(60)
    c.args[0].exp().sum()


def test_each_death_is_told_of_the_input_that_it_is_of():
    cases = [ints(n) for n in (4, 0, 2, 1, 5)]
    assert apart.dying(dies_without_indices, cases) == {cases[1]: "SIGSEGV", cases[3]: "it exits with 3"}
    assert apart.dying(dies_without_indices, [cases[0], cases[2]]) == {}


def test_what_does_not_end_is_left_and_after_two_the_rest_too():
    cases = [ints(n) for n in (3, 4, 3, 5)]
    found = apart.dying(dies_without_indices, cases, limit_s=0.5)
    assert [found.get(c) for c in cases] == [
        "no end within 0.5 s", None, "no end within 0.5 s", "not tried: it does not end on others",
    ]  # fmt: skip


def test_nothing_is_forked_for_inputs_without_integers(monkeypatch):
    monkeypatch.setattr(os, "fork", None)
    plain = case(
        "floats and a mask", torch.randn(3), torch.ones(3, dtype=torch.bool), torch.ones(1, dtype=torch.cfloat)
    )
    assert apart.dying(dies_without_indices, [plain]) == {}


def test_nothing_is_forked_for_tensors_of_a_gpu(monkeypatch):
    """A fork cannot use the context of the process that it is of; "meta" stands for a GPU."""
    monkeypatch.setattr(os, "fork", None)
    far = case("far", torch.randn(2), torch.arange(0, device="meta"))
    assert apart.dying(dies_without_indices, [far]) == {}


def test_a_reference_that_reads_where_nothing_is_does_not_end_a_full_check(namespace):
    """torch's embedding_bag in float64 dies where there are rows to add and no bag to add them to."""

    @wb.op(f"{namespace}::bag")
    def bag(table: torch.Tensor, rows: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(rows, table, offsets, mode="sum")

    @bag.cases
    def _(t):
        yield t(10, 4), t(7, dtype=torch.int64, low=0, high=10), torch.tensor([0, 2, 2, 5])

    @bag.kernel("cpu")
    def _(table, rows, offsets):
        return torch.nn.functional.embedding_bag(rows, table, offsets, mode="sum")

    tries = tryout.tries_of(bag)
    report = full.check(bag, lambda: tries, lambda: quick.check(bag), device="cpu", only=("sizes",))
    (empty,) = [r for r in report.rows if r.case == "empty"]
    assert "1 on which the reference itself ends the process: SIGSEGV" in empty.detail
