"""Ops under torch.vmap: the loop that every op has, the user's own rule, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb


@pytest.fixture
def outer(namespace):
    @wb.op(f"{namespace}::outer")
    def outer(x: Tensor, y: Tensor, k: float = 2.0) -> Tensor:
        return x[:, None] * y * k

    return outer


@pytest.fixture(params=["handle", "torch.ops"])
def call(request, outer):
    return outer if request.param == "handle" else outer.torch_op


@pytest.mark.parametrize(
    ("in_dims", "shapes"),
    [
        ((0, None), ((4, 3), (5,))),
        ((None, 0), ((3,), (4, 5))),
        ((0, 0), ((4, 3), (4, 5))),
        ((1, -1), ((3, 4), (5, 4))),
    ],
)
@pytest.mark.parametrize("out_dim", [0, 1, -1])
def test_against_a_loop(call, in_dims, shapes, out_dim):
    x, y = (torch.randn(*s) for s in shapes)
    pick = lambda t, d, i: t if d is None else t.select(d, i)
    expected = torch.stack([call(pick(x, in_dims[0], i), pick(y, in_dims[1], i)) for i in range(4)], out_dim)
    torch.testing.assert_close(torch.vmap(call, in_dims, out_dim)(x, y), expected)


def test_nested_and_chunked(call):
    x, y = torch.randn(2, 3, 4), torch.randn(5)
    twice = torch.vmap(torch.vmap(lambda a: call(a, y)))(x)
    torch.testing.assert_close(twice, x[..., None] * y * 2)
    torch.testing.assert_close(torch.vmap(lambda a: call(a, y), chunk_size=1)(x[0]), twice[0])


def test_an_empty_batch(call):
    out = torch.vmap(call, (0, None))(torch.randn(0, 3), torch.randn(5))
    assert out.shape == (0, 3, 5)


def test_no_warning_about_a_fallback(call, recwarn):
    x, y = torch.randn(4, 3), torch.randn(5)
    torch.vmap(torch.func.grad(lambda a: call(a, y).sum()))(x)
    torch.func.jacrev(lambda a: call(a, y))(x[0])
    assert not [w for w in recwarn if "batching rule" in str(w.message)]


def test_several_outputs_lists_and_other_results(namespace):
    @wb.op(f"{namespace}::many")
    def many(x: Tensor) -> tuple[Tensor, list[Tensor], int]:
        return x.sum(), [x + 1, x.argmax()], x.numel()

    x = torch.randn(4, 3)
    total, (plus, at), count = torch.vmap(many, out_dims=(0, 0, None))(x)
    torch.testing.assert_close(total, x.sum(1))
    torch.testing.assert_close(plus, x + 1)
    assert at.tolist() == x.argmax(1).tolist()
    assert count == 3


def test_lists_of_tensors(namespace):
    @wb.op(f"{namespace}::total")
    def total(xs: list[Tensor], w: Tensor) -> Tensor:
        return sum(xs) * w

    a, b, w = torch.randn(4, 3), torch.randn(3), torch.randn(4)
    torch.testing.assert_close(torch.vmap(total, ((0, None), 0))((a, b), w), (a + b) * w[:, None])


def test_keyword_only_tensors(namespace):
    @wb.op(f"{namespace}::scaled")
    def scaled(x: Tensor, *, w: Tensor, k: float = 2.0) -> Tensor:
        return x * w * k

    x, w = torch.randn(4, 3), torch.randn(4)
    torch.testing.assert_close(torch.vmap(lambda a, b: scaled(a, w=b))(x, w), x * w[:, None] * 2)

    @scaled.vmap
    def _(info, in_dims, x, *, w, k):
        assert in_dims == (0, 0, None)
        return x * w[:, None] * k * 10, 0

    torch.testing.assert_close(torch.vmap(lambda a, b: scaled(a, w=b))(x, w), x * w[:, None] * 20)


def test_optional_tensors(namespace):
    @wb.op(f"{namespace}::maybe")
    def maybe(x: Tensor, w: Tensor | None = None) -> Tensor:
        return x if w is None else x * w

    x = torch.randn(4, 3)
    torch.testing.assert_close(torch.vmap(maybe)(x), x)
    torch.testing.assert_close(torch.vmap(maybe)(x, x), x * x)


def test_the_users_own_rule(outer):
    seen = []

    @outer.vmap
    def _(info, in_dims, x, y, k):
        seen.append((info.batch_size, in_dims))
        return x[:, :, None] * y * k, 0

    x, y = torch.randn(4, 3), torch.randn(5)
    torch.testing.assert_close(torch.vmap(outer, (0, None))(x, y), x[..., None] * y * 2)
    assert seen == [(4, (0, None, None))]


def test_a_rule_that_returns_something_else(outer):
    @outer.vmap
    def _(info, in_dims, x, y, k):
        return x

    with pytest.raises(RuntimeError, match="to have two returns"):
        torch.vmap(outer, (0, None))(torch.randn(4, 3), torch.randn(5))


def test_in_place(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    x, y = torch.zeros(4, 3), torch.arange(4.0)
    torch.vmap(lambda a, b: (add_(a, b), a)[1])(x, y)
    assert x[:, 0].tolist() == [0, 1, 2, 3]
    shared = torch.zeros(3)
    with pytest.raises(
        RuntimeError, match=r"it mutates 'x', which is not batched; every element would write to the same"
    ):
        torch.vmap(lambda b: (add_(shared, b), b)[1])(y)
    assert shared.tolist() == [0, 0, 0]


def test_compiled(outer):
    x, y = torch.randn(4, 3), torch.randn(5)
    compiled = torch.compile(lambda a, b: torch.vmap(outer, (0, None))(a, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), x[..., None] * y * 2)
