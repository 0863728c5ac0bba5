"""The check as a whole: what each row says of a good op, and which one finds which mistake."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from workbench.case import case
from workbench.check import gradcheck
from workbench.check.cures import TABLE, cure
from workbench.check.quick import check
from workbench.errors import WorkbenchError


def reference(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
    return x * k * w


def cases(t):
    yield t(4, 5), t(5)
    yield case("odd", t(3, 123), t(123))
    yield case("large", t(4096, 4096), t(4096), bench=True)


def backward(ctx, g):
    x, w = ctx.saved_tensors
    return g * w * 2.0, (g * x * 2.0).sum(0), None


def rows(report, name):
    return [r for r in report.rows if r.check == name]


def only(report, name):
    (row,) = rows(report, name)
    return row


def failures(report):
    return [(r.check, r.detail, r.cure) for r in report.rows if r.status == "fail"]


def test_a_good_op_passes_every_row(standin):
    op = standin(reference, reference, cases, backward=backward, dtypes=(torch.float32, torch.bfloat16))
    report = check(op)
    assert report.ok and not failures(report)
    assert (report.op, report.level) == (op.qualname, "quick") and report.seconds > 0
    assert [r.case for r in rows(report, "agreement")] == ["4x5 float32", "4x5 bfloat16", "odd float32", "odd bfloat16"]
    assert list(dict.fromkeys(r.check for r in report.rows)) == [
        "agreement", "schema", "autograd registration", "fake", "gradients", "gradcheck", "compile", "compiled = eager",
    ]  # fmt: skip
    assert all(r.status == "pass" for r in report.rows)
    assert [r.case for r in rows(report, "gradients")] == ["4x5 float32", "4x5 bfloat16"]
    assert only(report, "gradcheck").detail == (
        "by finite differences in float64, along random directions, the backward is the forward's derivative; "
        "second derivatives were not tried"
    )
    assert only(report, "fake").detail == (
        "the fake's shapes, dtypes and strides are those of the real call, on plain inputs and inputs that require "
        "gradients; other shapes were not tried"
    )


def test_full_is_element_by_element(standin):
    op = standin(reference, reference, cases, backward=backward)
    assert "element by element" in only(check(op, "full"), "gradcheck").detail
    with pytest.raises(WorkbenchError, match="level='slow'.*quick and full"):
        check(op, "slow")


def test_where_that_takes_too_long_it_is_along_directions(standin, monkeypatch):
    monkeypatch.setattr(gradcheck, "ELEMENTWISE_S", 0.0)
    op = standin(reference, reference, cases, backward=backward)
    assert "along random directions" in only(check(op, "full"), "gradcheck").detail


def test_wrong_values(standin):
    def kernel(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        y = x * k * w
        y[-1, -1] = 0
        return y

    failed = failures(check(standin(kernel, reference, cases)))
    assert [f[0] for f in failed] == ["agreement", "agreement"]
    assert (
        failed[0][2] == "No rounding is that far off: look at indices, at bounds of loops, at what a sum begins with."
    )


def test_a_reference_that_raises_on_a_case_of_its_own(standin):
    def broken(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        if x.shape[1] == 123:
            return x.tpok(k)
        return x * k * w

    report = check(standin(reference, broken, cases))
    row = only(report, "reference")
    assert (row.case, row.status) == ("odd float32", "fail")
    assert row.detail.startswith("the reference itself raises AttributeError") and "at `return x.tpok(k)`" in row.detail
    assert row.cure == "Mend the reference, or the case (@op.cases)."
    assert [r.case for r in rows(report, "agreement")] == ["4x5 float32"]
    assert {r.status for r in report.rows if r.check != "reference"} <= {"pass", "skip"}

    def never(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        raise ValueError

    report = check(standin(reference, never, cases))
    assert [(r.check, r.status) for r in report.rows] == [
        ("reference", "fail"),
        ("reference", "fail"),
        ("agreement", "skip"),
    ]


def test_wrong_dtype_of_half_inputs_only(standin):
    def kernel(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        return x.float() * k * w.float()

    report = check(standin(kernel, reference, cases, dtypes=(torch.float32, torch.float16)))
    assert {f[1] for f in failures(report)} == {"out is float32, the reference gives float16"}
    assert [r.case for r in report.rows if r.status == "fail"] == ["4x5 float16", "odd float16"]


def test_a_fake_that_says_other_strides(standin):
    def fake(x, w, k=2.0):
        return torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device).t()

    report = check(standin(reference, reference, cases, fake=fake))
    row = only(report, "fake")
    assert row.status == "fail" and "Stride mismatch! Strides are (5, 1) and (1, 4)" in row.detail
    assert row.cure == "Its strides are not the kernel's: make the kernel and the reference (or @op.fake) say the same."


def test_a_fake_that_says_another_shape(standin):
    report = check(standin(reference, reference, cases, fake=lambda x, w, k=2.0: x.new_empty(7)))
    row = only(report, "fake")
    assert row.status == "fail" and row.cure.startswith("Its shapes are not the kernel's")


def test_a_wrong_gradient_is_found_although_opcheck_says_success(standin):
    def wrong(ctx, g):
        x, w = ctx.saved_tensors
        return g * 7, (g * x * 2.0).sum(0), None

    report = check(standin(reference, reference, cases, backward=wrong))
    assert only(report, "compile").status == only(report, "autograd registration").status == "pass"
    row = rows(report, "gradients")[0]
    assert row.status == "fail" and row.detail.startswith("grad_x: 20 of 20 elements differ")
    row = only(report, "gradcheck")
    assert row.status == "fail" and "Jacobian mismatch for output 0 with respect to input 0" in row.detail
    assert row.cure == "The backward is not the forward's derivative: look at its formula."


def test_float32_only_kernels_are_judged_by_the_references_gradients(standin):
    def kernel(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        if x.dtype is torch.float64:
            raise NotImplementedError("float or nothing")
        return x * k * w

    report = check(standin(kernel, reference, cases, backward=backward))
    assert report.ok and rows(report, "gradients")[0].status == "pass"
    assert only(report, "gradcheck").status == "skip"
    assert only(report, "gradcheck").detail == (
        "not run: it has no form for float64, and below it finite differences are noise; "
        "the gradients rows judge them instead"
    )


def test_kernels_that_compute_in_float32_inside_too(standin):
    def kernel(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        return (x.float() * k * w.float()).to(x.dtype)

    report = check(standin(kernel, reference, cases, backward=backward))
    assert report.ok
    assert only(report, "gradcheck").detail.startswith("not run: it computes in less than float64 inside")


def test_an_op_that_changes_an_argument_that_it_does_not_name(standin):
    def kernel(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        y = x * k * w
        x.add_(1)
        return y

    row = only(check(standin(kernel, reference, cases, fake=reference)), "schema")
    assert row.status == "fail" and row.cure.startswith("The op changes an argument")


def step_(p: Tensor, g: Tensor) -> None:
    p.mul_(g)


def test_a_mutating_op_passes(standin):
    op = standin(step_, step_, lambda t: [(t(4, 5), t(4, 5))], mutates=("p",))
    report = check(op)
    assert report.ok and not failures(report)
    assert only(report, "agreement").status == only(report, "schema").status == "pass"
    assert only(report, "gradients").detail.startswith("it is not differentiable")


def test_random_ops_have_no_gradient_rows(standin):
    def drop(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x)

    report = check(standin(drop, drop, lambda t: [t(4, 5)], random=True))
    assert report.ok
    assert only(report, "agreement").detail.startswith("not judged: the reference draws random numbers")
    assert only(report, "gradients").detail == "not judged: the op draws random numbers"
    assert {r.check for r in report.rows if r.status == "skip"} >= {"compile", "compiled = eager"}
    compared = standin(drop, drop, lambda t: [t(40, 50)], random=True, compare=lambda x, y: (y[y != 0] != 0).all())
    assert only(check(compared), "agreement").status == "pass"


def test_an_op_without_a_reference_says_what_was_not_judged(standin):
    report = check(standin(reference, None, cases, backward=backward))
    assert report.ok
    assert {r.detail for r in rows(report, "agreement")} == {"not judged: the op has no reference to agree with"}
    assert rows(report, "gradients")[0].detail == "not judged: the op has no reference"
    assert only(report, "gradcheck").status == "pass", "its own forward is what it can be held to"


def test_an_op_without_cases(standin):
    op = standin(reference, reference, cases)
    op._cases = ()
    (row,) = check(op).rows
    assert row.status == "skip" and "give it some with @op.cases" in row.detail


def test_a_kernel_that_raises_is_a_failed_row_not_an_exception(standin):
    def kernel(x: Tensor, w: Tensor, k: float = 2.0) -> Tensor:
        raise RuntimeError("no such thing\nand a page of detail")

    report = check(standin(kernel, reference, cases, fake=reference))
    assert not report.ok
    assert rows(report, "agreement")[0].detail == "RuntimeError: no such thing"


def test_checking_twenty_times_compiles_each_time(standin):
    """Dynamo stops at eight recompilations of one code object."""
    op = standin(reference, reference, lambda t: [(t(4, 5), t(5))])
    for _ in range(12):
        assert only(check(op), "compiled = eager").status == "pass"


def test_every_row_has_cures():
    names = {
        "agreement",
        "schema",
        "autograd registration",
        "fake",
        "gradients",
        "gradcheck",
        "compile",
        "compiled = eager",
    }
    assert names <= {c.about for c in TABLE}
    assert cure(
        "agreement", "out: 3 of 9 elements differ, most at [1]: 0 where 1 was wanted; 3 were never written"
    ) == ("Elements are not written: look at the grid, or the last rows and columns.")
    assert cure("schema", "nobody knows this one") == ""


def test_an_integer_output_before_a_float_one_can_be_compiled_with_gradients(standin):
    def kernel(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.round().to(torch.int8), x * 3.0

    op = standin(kernel, kernel, lambda t: [t(4, 5)], backward=lambda ctx, g0, g1: g1 * 3.0)
    report = check(op)
    assert report.ok and not failures(report)
    assert only(report, "compile").detail == (
        "with symbolic sizes, the values and gradients are those of eager mode, on inputs that require gradients; "
        "dynamo and Inductor were not run"
    )
    assert only(report, "gradients").detail.startswith("grad_x: as the reference's vjp")


def test_gradients_are_judged_on_elements_and_not_on_none(standin):
    """A case with nothing in it may be the smallest, and every gradient is right there."""

    def empty_too(t):
        yield case("none", t(0, 5), t(5))
        yield t(4, 5), t(5)

    def wrong(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * 2.5, (g * x * 2.0).sum(0), None

    report = check(standin(reference, reference, empty_too, backward=wrong))
    found = only(report, "gradients")
    assert (found.case, found.status) == ("4x5 float32", "fail") and "grad_x" in found.detail
