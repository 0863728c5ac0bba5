"""What is said of fakes that are missing or wrong: each row that meets one names the cure, in quick checks and in full ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.check import full, quick
from workbench.check.cure_table import NO_FAKE, SYMBOLIC, VALUES
from workbench.judge import tryout

COMPILED = ("compiled, dynamic shapes", "compiled, gradients", "export", "inductor", "autocast")


def doubling(namespace, fake=None, reference=lambda x: x * 2):
    @wb.op(f"{namespace}::double")
    def double(x: Tensor) -> Tensor:
        return reference(x)

    double.cases(lambda t: [t(3, 4)])
    double.kernel("cpu")(lambda x: x * 2)
    if fake is not None:
        double.fake(fake)
    return double


def cures(report, *names):
    return {r.check: r.cure for r in report.rows if r.status == "fail" and r.check in names}


def rows(op, *only):
    tries = tryout.tries_of(op)
    return full.check(op, lambda: tries, lambda: quick.check(op, "full"), device="cpu", only=only)


def test_a_missing_fake(namespace):
    op = wb.op(f"{namespace}::double(Tensor x) -> Tensor")
    op.cases(lambda t: [t(3, 4)])
    op.kernel("cpu")(lambda x: x * 2)
    found = cures(op.check(), "fake", "compile", "compiled = eager")
    assert (
        "Inferred from the one case there is, and right there: `double.fake(lambda x: torch.empty_like(x))`"
        in found["fake"]
    )
    assert found["compile"] == found["compiled = eager"] == NO_FAKE
    assert cures(rows(op, "sizes", *COMPILED), *COMPILED) == dict.fromkeys(
        [n for n in COMPILED if n != "compiled, gradients"], NO_FAKE
    )


def test_a_fake_that_takes_no_symbolic_sizes(namespace):
    op = doubling(namespace, lambda x: x.new_empty([int.from_bytes(n.to_bytes(8, "big"), "big") for n in x.shape]))
    report = op.check()
    assert cures(report, "fake", "compile") == {"compile": SYMBOLIC}, str(report)
    report = rows(op, "sizes", "compiled, dynamic shapes")
    assert cures(report, "compiled, dynamic shapes") == {"compiled, dynamic shapes": SYMBOLIC}
    told = next(r.detail for r in report.rows if r.check == "compiled, dynamic shapes")
    assert "making fake tensor call: AttributeError: 'SymInt' object has no attribute 'to_bytes'" in told


def test_a_reference_that_looks_at_values_is_no_fake(namespace):
    op = doubling(namespace, reference=lambda x: x * 2 if x.sum().item() > 0 else x + x)
    assert set(cures(op.check(), "fake", "compile", "compiled = eager").values()) == {VALUES}
    found = cures(rows(op, "sizes", *COMPILED), *COMPILED)
    assert found == dict.fromkeys(COMPILED, VALUES)
    op.fake(torch.empty_like)
    assert op.check().ok and rows(op, "sizes", *COMPILED).ok


@pytest.mark.parametrize("own", [False, True], ids=["the reference's fake", "a fake of its own"])
def test_a_size_that_depends_on_values_is_no_mistake(namespace, own):
    @wb.op(f"{namespace}::above")
    def above(x: Tensor) -> Tensor:
        return x[x > 0]

    above.cases(lambda t: [t(3, 4)])
    above.kernel("cpu")(lambda x: x.masked_select(x > 0))
    if own:
        above.fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
    report = rows(above, "sizes", "metadata", "directional derivatives", "vmap", "compiled, dynamic shapes")
    assert report.ok, str(report)
    told = {r.check: r.detail for r in report.rows if r.status == "skip"}
    assert told["directional derivatives"] == "not judged: shapes depend on values, which have to move"
    assert told["vmap"] == "not judged: shapes depend on values, so there is no batch of results"
