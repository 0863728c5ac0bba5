"""A reference in float64 although it casts inside; random numbers stay those of the plain run."""

from __future__ import annotations

import pytest
import torch

from workbench import schema
from workbench.case import make
from workbench.check.agree import expected
from workbench.check.float64 import Limits, TooMuchError, available_bytes, float64
from workbench.check.gradients import expected_gradients

X = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.float() / 3,
        lambda x: x.half().float() / 3,
        lambda x: x.to(torch.bfloat16) / 3,
        lambda x: x.to(dtype=torch.float32) / 3,
        lambda x: x.type(torch.float32) / 3,
        lambda x: x / torch.full((), 3.0),
        lambda x: x * torch.tensor(1 / 3),
        lambda x: x * torch.tensor([1 / 3], dtype=torch.float32),
        lambda x: x / (torch.zeros(64, dtype=torch.float32) + 3),
        lambda x: torch.empty(x.shape, dtype=torch.float32).copy_(x) / 3,
        lambda x: x.sum(0, dtype=torch.float32) * 0 + x / 3,
        lambda x: x / torch.arange(3, 4).float(),
    ],
)
def test_casts_and_factories_lose_nothing(reference):
    with float64(torch.float32):
        y = reference(X.double())
    assert y.dtype is torch.float64
    assert torch.equal(y, X.double() / 3) or (y - X.double() / 3).abs().max() < 1e-15


def test_the_plain_float64_run_would_lose():
    rounded = (X.double().float() / 3).double()
    assert (rounded - X.double() / 3).abs().max() > 1e-9


def test_integers_stay_and_the_default_dtype_comes_back():
    with float64(torch.float32):
        assert X.double().argmax(-1).dtype is torch.int64
        assert torch.ones(3, dtype=torch.int32).dtype is torch.int32
        assert torch.ones(3).dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32
    with pytest.raises(ValueError, match="boom"):
        with float64(torch.float32):
            raise ValueError("boom")
    assert torch.get_default_dtype() is torch.float32


ONE = schema.parse("lab::one(Tensor x) -> Tensor")


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(x.shape, generator=torch.Generator().manual_seed(3)),
        lambda x: torch.rand(x.shape),
        torch.rand_like,
        lambda x: torch.randn(x.shape, dtype=torch.float32),
        lambda x: torch.empty_like(x).bernoulli_(0.5),
        lambda x: torch.nn.functional.dropout(torch.ones_like(x)),
        lambda x: torch.randperm(x.numel()).view(x.shape).to(x.dtype),
        lambda x: torch.randint(0, 9, x.shape).to(x.dtype),
    ],
)
def test_random_draws_keep_their_numbers(draw):
    """With others every mask would differ, the reference's own error be huge, and every kernel pass."""
    for case in make(lambda t: [t(8, 32)], ONE, (torch.float32, torch.bfloat16)):
        output = expected(lambda x: x * draw(x), ONE, case).outputs[0]
        assert (output.true - output.value.double()).abs().max() <= 2**-8 * output.true.abs().max()
        assert output.true.dtype is torch.float64


def test_another_op_inside_can_run_by_its_reference():
    library = torch.library.Library("float64test", "FRAGMENT")
    library.define("third(Tensor x) -> Tensor")
    library.impl("third", lambda x: (x.float() / 3).to(x.dtype), "CPU")
    op = torch.ops.float64test.third
    with float64(torch.float32, references={"float64test::third": lambda x: x / 3}):
        assert torch.equal(op(X.double()), X.double() / 3)
    with float64(torch.float32):
        assert (op(X.double()) - X.double() / 3).abs().max() < 1e-6


def test_limits_stop_between_calls():
    x = torch.ones(3)
    with pytest.raises(TooMuchError, match="more than 0 s"), Limits(0.0):
        x + 1


def test_available_memory_is_known():
    assert 1 << 20 < available_bytes(torch.device("cpu")) < 1 << 62


def test_gradients_see_through_another_op_whose_reference_calls_a_third(namespace):
    """Neither has a form for float64, nor a gradient: without the references there is nothing to compare with."""
    library = torch.library.Library(namespace, "FRAGMENT")
    for name in ("inner", "outer"):
        library.define(f"{name}(Tensor x) -> Tensor")
    space = getattr(torch.ops, namespace)
    references = {f"{namespace}::inner": lambda x: x.sin(), f"{namespace}::outer": lambda x: space.inner(x) * 2}
    [case] = make(lambda t: [t(4, 8)], ONE, (torch.float32,))
    wanted = expected_gradients(lambda x: space.outer.default(x) + x, ONE, case, references=references)
    [output] = wanted.outputs
    x = wanted.inputs()["x"].double()
    [cotangent] = wanted.cotangents.values()
    torch.testing.assert_close(output.true, (2 * x.cos() + 1) * cotangent)
    assert output.true.dtype is torch.float64 and set(wanted.terms()) == {"grad_x"}
    plain = expected(lambda x: space.outer(x), ONE, case, references=references)
    assert plain.note == "" and torch.equal(plain.outputs[0].value, 2 * wanted.inputs()["x"].sin())
