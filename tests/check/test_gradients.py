"""Gradients against the vjp of the reference, in the dtype and in float64."""

from __future__ import annotations

import pytest
import torch

from workbench import schema
from workbench.case import make
from workbench.check.agree import judge
from workbench.check.gradients import expected_gradients, pull
from workbench.errors import WorkbenchError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TWO = schema.parse("lab::two(Tensor x, Tensor w, float k=2.0) -> Tensor")
PAIR = schema.parse("lab::pair(Tensor x, Tensor index) -> (Tensor y, Tensor where_)")
LISTS = schema.parse("lab::scale_(Tensor(a!)[] ps, Tensor[] gs) -> ()")


def reference(x, w, k=2.0):
    return (x.float() * k).to(x.dtype) * w


def test_gradients_of_the_reference_agree_in_every_dtype():
    for case in make(lambda t: [(t(5, 123), t(123))], TWO, DTYPES):
        wanted = expected_gradients(reference, TWO, case)
        assert [o.name for o in wanted.outputs] == ["grad_x", "grad_w"]
        x, w, k = wanted.inputs().values()
        cotangent = wanted.cotangents["out"]
        true = (cotangent.double() * w.double() * k, (cotangent.double() * x.double() * k).sum(0))
        for output, right in zip(wanted.outputs, true, strict=True):
            assert output.value.dtype is case.dtype
            assert torch.allclose(output.true, right, rtol=1e-12), "float64 although it casts inside"
        assert judge(pull(reference, wanted), wanted).status == "agree"


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, k):
        ctx.save_for_backward(x, w)
        ctx.k = k
        return x * k * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.k, (g * x * 1.1 * ctx.k).sum(0), None


def test_a_wrong_gradient_is_named():
    case = make(lambda t: [(t(5, 123), t(123))], TWO)[0]
    wanted = expected_gradients(reference, TWO, case)
    outcome = judge(pull(Wrong.apply, wanted), wanted)
    assert outcome.status == "mismatch" and outcome.detail.startswith("grad_w: ")


def test_integer_and_detached_outputs_get_no_cotangent():
    def pair(x, index):
        return x[index] * 2, x.argmax()

    case = make(lambda t: [(t(5), torch.tensor([1, 1, 3]))], PAIR)[0]
    wanted = expected_gradients(pair, PAIR, case)
    assert list(wanted.cotangents) == ["y"] and [o.name for o in wanted.outputs] == ["grad_x"]
    assert wanted.outputs[0].value[0] == 0 and wanted.outputs[0].value[1] != 0

    wanted = expected_gradients(lambda x, index: (x * 2, x.sum().detach()), PAIR, case)
    assert list(wanted.cotangents) == ["y"]
    wanted = expected_gradients(lambda x, index: (x.detach(), x.argmax()), PAIR, case)
    assert wanted.skipped == "no output takes a gradient here"


def test_mutated_lists_and_constants():
    def scale_(ps, gs):
        for p, g in zip(ps, gs, strict=True):
            p.mul_(g)

    case = make(lambda t: [([t(3), t(0)], [t(3, grad=False), t(0, grad=False)])], LISTS)[0]
    wanted = expected_gradients(scale_, LISTS, case)
    assert [o.name for o in wanted.outputs] == ["grad_ps[0]", "grad_ps[1]"]
    assert list(wanted.cotangents) == ["ps[0]", "ps[1]"]
    g = wanted.inputs()["gs"][0]
    assert torch.equal(wanted.outputs[0].value, wanted.cotangents["ps[0]"] * g)
    assert judge(pull(scale_, wanted), wanted).status == "agree"


def test_an_op_without_a_gradient_says_so():
    case = make(lambda t: [(t(5, 123), t(123))], TWO)[0]
    wanted = expected_gradients(reference, TWO, case)
    with pytest.raises(WorkbenchError, match="out has no gradient, the reference's has one"):
        pull(lambda x, w, k: reference(x.detach(), w.detach(), k), wanted)


def test_limits_hold_here_too():
    def slow(x, w, k=2.0):
        while True:
            x = x + 1

    case = make(lambda t: [(t(3), t(3))], TWO)[0]
    assert "more than 0.05 s" in expected_gradients(slow, TWO, case, limit_s=0.05).skipped
    assert expected_gradients(None, TWO, case).skipped == "the op has no reference"
