"""Gradients of an op that is only its reference: every order and mode, transforms, compiled, in place, refused."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, func
from torch.autograd import gradcheck, gradgradcheck

import workbench as wb
from workbench import SchemaError
from workbench.check.cures import cure

K = 2.0  # product(x, y) = x * x * y * K


def double(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(shape, dtype=torch.double, requires_grad=grad)


@pytest.fixture
def product(namespace):
    @wb.op(f"{namespace}::product")
    def product(x: Tensor, y: Tensor, k: float = K) -> Tensor:
        return x * x * y * k

    return product


@pytest.fixture(params=["handle", "torch.ops"])
def call(request, product):
    """The two ways to call an op: its handle and its `torch.ops` entry."""
    return product if request.param == "handle" else product.torch_op


@pytest.fixture
def add_(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor, alpha: float = 1.0) -> None:
        x.add_(y, alpha=alpha)

    return add_


# ---------------------------------------------------------------- eager


def test_first_order(call):
    x, y = double(5, 3, grad=True), double(5, 3, grad=True)
    gx, gy = torch.autograd.grad(call(x, y).sum(), [x, y])
    torch.testing.assert_close(gx, 2 * K * x * y)
    torch.testing.assert_close(gy, K * x * x)


def test_gradcheck_of_every_mode(call):
    x, y = double(3, grad=True), double(3, grad=True)
    assert gradcheck(call, (x, y), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert gradgradcheck(call, (x, y), check_fwd_over_rev=True, check_rev_over_rev=True)


def test_only_what_is_wanted(call):
    x, y = double(3, grad=True), double(3)
    out = call(x, y)
    out.sum().backward()
    assert y.grad is None
    torch.testing.assert_close(x.grad, 2 * K * x * y)
    assert not call(double(3), double(3)).requires_grad
    with torch.no_grad():
        assert not call(x, y).requires_grad
    with torch.inference_mode():
        assert not call(x, y).requires_grad


def test_broadcast_arguments_get_gradients_of_their_own_shape(call):
    x, y = double(4, 5, grad=True), double(5, grad=True)
    gx, gy = torch.autograd.grad(call(x, y).sum(), [x, y])
    torch.testing.assert_close(gx, 2 * K * x * y)
    torch.testing.assert_close(gy, (K * x * x).sum(0))


def test_gradients_have_the_layout_of_their_argument(call):
    x = double(3, 4, grad=True)
    base = double(4, 3).requires_grad_()
    gx, gb = torch.autograd.grad(call(x, base.t()).sum(), [x, base])
    assert gx.stride() == x.stride()
    torch.testing.assert_close(gb, (K * x * x).t())
    strided = double(6, 4)[::2].requires_grad_()
    (g,) = torch.autograd.grad(call(x, strided).sum(), [strided])
    torch.testing.assert_close(g, K * x * x)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 123), (2, 0, 3)], ids=str)
def test_odd_shapes(call, shape):
    x, y = double(*shape, grad=True), double(*shape, grad=True)
    gx, gy = torch.autograd.grad(call(x, y).sum(), [x, y])
    torch.testing.assert_close(gx, 2 * K * x * y)
    torch.testing.assert_close(gy, K * x * x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_keep_the_dtype(call, dtype):
    x, y = torch.randn(7, dtype=dtype, requires_grad=True), torch.randn(7, dtype=dtype)
    (g,) = torch.autograd.grad(call(x, y).sum(), [x])
    assert g.dtype is dtype
    torch.testing.assert_close(g, torch.autograd.grad((x * x * y * K).sum(), [x])[0])


def test_complex(namespace):
    @wb.op(f"{namespace}::turned")
    def turned(z: Tensor, w: Tensor) -> Tensor:
        return z * z.conj() * w

    z = torch.randn(3, dtype=torch.cdouble, requires_grad=True)
    w = torch.randn(3, dtype=torch.cdouble, requires_grad=True)
    assert gradcheck(turned, (z, w))
    assert gradgradcheck(turned, (z, w))


def test_batched_incoming_gradients(call):
    x, y = double(3, grad=True), double(3)
    (jacobian,) = torch.autograd.grad(call(x, y), [x], torch.eye(3, dtype=torch.double), is_grads_batched=True)
    torch.testing.assert_close(jacobian, torch.diag(2 * K * x * y))


def test_backward_twice_needs_retain_graph(call):
    x, y = double(3, grad=True), double(3)
    out = call(x, y).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_hooks_and_checkpoint(call):
    x, y = double(3, grad=True), double(3)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        out = call(x, y)
    assert packed
    torch.testing.assert_close(torch.autograd.grad(out.sum(), [x])[0], 2 * K * x * y)
    out = torch.utils.checkpoint.checkpoint(call, x, y, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), [x])[0], 2 * K * x * y)


def test_a_saved_tensor_that_was_changed_is_noticed(call):
    x, y = double(3, grad=True), double(3)
    out = call(x, y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# ---------------------------------------------------------------- transforms


def test_func_transforms(call):
    x, y = double(3), double(3)
    f = lambda a: call(a, y)
    torch.testing.assert_close(func.grad(lambda a: f(a).sum())(x), 2 * K * x * y)
    torch.testing.assert_close(func.jacrev(f)(x), torch.diag(2 * K * x * y))
    torch.testing.assert_close(func.jacfwd(f)(x), torch.diag(2 * K * x * y))
    torch.testing.assert_close(func.hessian(lambda a: f(a).sum())(x), torch.diag(2 * K * y))
    torch.testing.assert_close(func.jacrev(func.jacrev(lambda a: f(a).sum()))(x), torch.diag(2 * K * y))
    torch.testing.assert_close(func.jacrev(func.jacfwd(lambda a: f(a).sum()))(x), torch.diag(2 * K * y))
    out, tangent = func.jvp(f, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(out, x * x * y * K)
    torch.testing.assert_close(tangent, 2 * K * x * y)
    out, pull = func.vjp(f, x)
    torch.testing.assert_close(pull(torch.ones_like(out))[0], 2 * K * x * y)
    _, linear = func.linearize(f, x)
    torch.testing.assert_close(linear(torch.ones_like(x)), 2 * K * x * y)


def test_vmap_and_gradients(call):
    x, y = double(4, 3), double(3)
    torch.testing.assert_close(torch.vmap(lambda a: call(a, y))(x), x * x * y * K)
    per_sample = torch.vmap(func.grad(lambda a: call(a, y).sum()))(x)
    torch.testing.assert_close(per_sample, 2 * K * x * y)
    through = func.grad(lambda a: torch.vmap(lambda row: call(row, y))(a).sum())(x)
    torch.testing.assert_close(through, 2 * K * x * y)
    torch.testing.assert_close(
        torch.vmap(func.hessian(lambda a: call(a, y).sum()))(x), torch.diag(2 * K * y).expand(4, 3, 3)
    )


def test_func_grad_of_a_captured_tensor_that_requires_grad(call):
    x, y = double(3), double(3, grad=True)
    inner = func.grad(lambda a: call(a, y).sum())(x)
    (g,) = torch.autograd.grad(inner.sum(), [y])
    torch.testing.assert_close(g, 2 * K * x)


def test_the_same_with_a_kernel_that_autograd_cannot_see_into(product, call):
    product.registration.set_kernel("product", "cpu", lambda x, y, k=K: torch.from_numpy(x.detach().numpy() ** 2 * y.detach().numpy() * k))  # fmt: skip
    x, y = double(3), double(3, grad=True)
    (g,) = torch.autograd.grad(func.grad(lambda a: call(a, y).sum())(x).sum(), [y])
    torch.testing.assert_close(g, 2 * K * x)
    out, pull = func.vjp(lambda a: call(a, y), x)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), [y], retain_graph=True)[0], K * x * x)
    torch.testing.assert_close(torch.autograd.grad(pull(torch.ones_like(x))[0].sum(), [y])[0], 2 * K * x)


def test_forward_ad_without_transforms(call):
    import torch.autograd.forward_ad as fwad

    x, y, t = double(3), double(3), double(3)
    with fwad.dual_level():
        out = call(fwad.make_dual(x, t), y)
        torch.testing.assert_close(fwad.unpack_dual(out).tangent, 2 * K * x * y * t)


def test_forward_ad_needs_a_reference(namespace):
    op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")
    with pytest.raises(SchemaError, match=r"has no reference, so forward-mode AD \(jvp, jacfwd\) cannot see into it"):
        func.jvp(op, (double(3),), (double(3),))


# ---------------------------------------------------------------- compiled


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_gradients(call, backend):
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: call(a, b) * 2, fullgraph=True, backend=backend)
    x, y = double(3, grad=True), double(3, grad=True)
    out = compiled(x, y)
    gx, gy = torch.autograd.grad(out.sum(), [x, y])
    torch.testing.assert_close(out, 2 * K * x * x * y)
    torch.testing.assert_close(gx, 4 * K * x * y)
    torch.testing.assert_close(gy, 2 * K * x * x)


@pytest.mark.parametrize("transform", ["grad", "jacrev", "vmap", "vmap grad", "jvp"])
def test_compiled_transforms(call, transform):
    torch._dynamo.reset()
    x, y = double(4, 3), double(3)
    f = {
        "grad": lambda a: func.grad(lambda q: call(q, y).sum())(a),
        "jacrev": lambda a: func.jacrev(lambda q: call(q, y))(a),
        "vmap": lambda a: torch.vmap(lambda q: call(q, y))(a),
        "vmap grad": lambda a: torch.vmap(func.grad(lambda q: call(q, y).sum()))(a),
        "jvp": lambda a: func.jvp(lambda q: call(q, y), (a,), (torch.ones_like(a),))[1],
    }[transform]
    torch.testing.assert_close(torch.compile(f, fullgraph=True, backend="aot_eager")(x), f(x))


# ---------------------------------------------------------------- optional tensors, lists, keyword-only, outputs


@pytest.fixture
def scaled(namespace):
    @wb.op(f"{namespace}::scaled")
    def scaled(x: Tensor, s: Tensor | None = None, *, w: Tensor | None = None, k: float = 2.0) -> Tensor:
        y = x * k if s is None else x * s * k
        return y if w is None else y * w

    return scaled


def test_optional_and_keyword_only_tensors(scaled):
    x, s, w = double(3, grad=True), double(3, grad=True), double(3, grad=True)
    torch.testing.assert_close(torch.autograd.grad(scaled(x).sum(), [x])[0], torch.full_like(x, 2.0))
    torch.testing.assert_close(torch.autograd.grad(scaled(x, s).sum(), [x, s])[1], 2 * x)
    torch.testing.assert_close(torch.autograd.grad(scaled(x, w=w).sum(), [w])[0], 2 * x)
    gx, gs, gw = torch.autograd.grad(scaled(x, s, w=w, k=3.0).sum(), [x, s, w])
    torch.testing.assert_close((gx, gs, gw), (3 * s * w, 3 * x * w, 3 * x * s))
    torch.testing.assert_close(func.grad(lambda q: scaled(x.detach(), w=q).sum())(w.detach()), 2 * x.detach())
    compiled = torch.compile(lambda a, b: scaled(a, w=b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x, w).sum(), [w])[0], 2 * x)


@pytest.fixture
def each(namespace):
    @wb.op(f"{namespace}::each")
    def each(xs: list[Tensor], w: Tensor | None = None) -> list[Tensor]:
        return [x * 2 for x in xs] if w is None else [x * x * w for x in xs]

    return each


def test_lists_of_tensors_in_and_out(each):
    a, b, w = double(3, grad=True), double(3, grad=True), double(3, grad=True)
    total = sum(o.sum() for o in each([a, b], w))
    ga, gb, gw = torch.autograd.grad(total, [a, b, w])
    torch.testing.assert_close((ga, gb, gw), (2 * a * w, 2 * b * w, a * a + b * b))
    assert gradcheck(lambda *t: tuple(each(list(t[:2]), t[2])), (a, b, w))
    assert gradgradcheck(lambda *t: tuple(each(list(t[:2]), t[2])), (a, b, w))


def test_a_list_where_only_some_want_a_gradient(each):
    a, b = double(3, grad=True), double(2)
    out = each([a, b])
    (ga,) = torch.autograd.grad(out[0].sum() + out[1].sum(), [a])
    torch.testing.assert_close(ga, torch.full_like(a, 2.0))
    assert each([]) == []


def test_lists_compiled(each):
    a, b, w = double(3, grad=True), double(3, grad=True), double(3, grad=True)
    compiled = torch.compile(lambda p, q, r: sum(each([p, q], r)), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(a, b, w).sum(), [w])[0], a * a + b * b)


def test_a_list_of_optional_tensors(namespace):
    @wb.op(f"{namespace}::picked")
    def picked(xs: list[Tensor | None], w: Tensor) -> Tensor:
        return sum(x * w for x in xs if x is not None)

    a, w = double(3, grad=True), double(3, grad=True)
    ga, gw = torch.autograd.grad(picked([a, None, a * 2], w).sum(), [a, w])
    torch.testing.assert_close((ga, gw), (3 * w, 3 * a))


def test_integer_outputs_and_detached_outputs_take_no_gradient(namespace):
    @wb.op(f"{namespace}::best", returns=("values", "indices"))
    def best(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return torch.topk(x, k)

    @wb.op(f"{namespace}::lse", returns=("out", "lse"))
    def lse(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.logsumexp(-1).detach()

    x = double(4, 7, grad=True)
    values, indices = best(x, 3)
    assert values.requires_grad
    assert not indices.requires_grad
    (g,) = torch.autograd.grad(values.sum(), [x])
    torch.testing.assert_close(g, torch.zeros_like(x).scatter(1, indices, 1.0))
    assert [o.requires_grad for o in lse(x)] == [True, False]
    assert [o.requires_grad for o in best.torch_op(x, 3)] == [True, False]
    assert gradcheck(lambda a: lse(a)[0], (x,))
    for op, args in ((best, (x, 3)), (lse, (x,))):
        compiled = torch.compile(lambda *a, op=op: op(*a), fullgraph=True, backend="aot_eager")
        assert [o.requires_grad for o in compiled(*args)] == [True, False]
        torch.testing.assert_close(
            torch.autograd.grad(compiled(*args)[0].sum(), [x]), torch.autograd.grad(op(*args)[0].sum(), [x])
        )


def test_an_output_whose_gradient_is_not_used(namespace):
    @wb.op(f"{namespace}::both")
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, x + y

    x, y = double(3, grad=True), double(3, grad=True)
    torch.testing.assert_close(torch.autograd.grad(both(x, y)[1].sum(), [x, y]), (torch.ones_like(x),) * 2)
    torch.testing.assert_close(torch.autograd.grad(both(x, y)[0].sum(), [x, y]), (y, x))
    assert gradgradcheck(both, (x, y))


def test_integer_arguments_beside_floating_ones(namespace):
    @wb.op(f"{namespace}::picked")
    def picked(table: Tensor, at: Tensor) -> Tensor:
        return table[at] * 2

    table, at = double(5, 3, grad=True), torch.tensor([0, 4, 4])
    (g,) = torch.autograd.grad(picked(table, at).sum(), [table])
    assert g[:, 0].tolist() == [2, 0, 0, 0, 4]
    assert gradgradcheck(lambda t: picked(t, at), (table,))


def test_an_op_with_only_integers_wants_no_gradient(namespace):
    @wb.op(f"{namespace}::count")
    def count(x: Tensor) -> Tensor:
        return (x > 0).sum()

    x = double(3, grad=True)
    assert not count(x).requires_grad
    assert torch.compile(count, fullgraph=True, backend="aot_eager")(x).item() == (x > 0).sum().item()


def test_an_op_without_tensors(namespace):
    @wb.op(f"{namespace}::ones")
    def ones(n: int, device: torch.device = torch.device("cpu")) -> Tensor:  # noqa: B008  as users write it
        return torch.ones(n, device=device)

    assert ones(3).tolist() == [1, 1, 1]
    assert getattr(torch.ops, namespace).ones(2).tolist() == [1, 1]


# ---------------------------------------------------------------- in place


def test_gradients_through_a_mutation(add_):
    x, y = double(3, grad=True), double(3, grad=True)
    for call in (add_, add_.torch_op):
        b = x * 1
        call(b, y, alpha=3.0)
        torch.testing.assert_close(b, x + 3 * y)
        gx, gy = torch.autograd.grad((b * b).sum(), [x, y])
        torch.testing.assert_close((gx, gy), (2 * (x + 3 * y), 6 * (x + 3 * y)))


def test_the_version_counter_is_bumped(add_):
    for call in (add_, add_.torch_op):
        for x in (double(3), double(3, grad=True) * 1):
            before = x._version
            call(x, double(3))
            assert x._version > before


def test_a_value_saved_before_the_mutation_is_noticed(add_):
    x, y = double(3, grad=True), double(3)
    for call in (add_, add_.torch_op):
        b = x * 1
        square = b * b
        call(b, y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()


def test_a_leaf_that_requires_grad_is_refused_before_anything_is_written(add_):
    x, y = double(3, grad=True), double(3)
    before = x.detach().clone()
    for call in (add_, add_.torch_op):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            call(x, y)
        assert torch.equal(x.detach(), before)
        assert x._version == 0
    with torch.no_grad():
        add_(x, y)
    torch.testing.assert_close(x.detach(), before + y)


def test_a_view_of_a_leaf_is_refused_too(add_):
    x, y = double(2, 3, grad=True), double(3)
    before = x.detach().clone()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        add_(x[0], y)
    assert torch.equal(x.detach(), before)


def test_gradients_through_a_mutated_view(add_):
    x, y = double(2, 3, grad=True), double(3, grad=True)
    base = x * 1
    add_(base[0], y, alpha=2.0)
    gx, gy = torch.autograd.grad((base * base).sum(), [x, y])
    expected = x + torch.stack([2 * y, torch.zeros_like(y)])
    torch.testing.assert_close(gx, 2 * expected)
    torch.testing.assert_close(gy, 4 * expected[0])


def test_gradients_through_two_views_of_one_base(namespace):
    @wb.op(f"{namespace}::swap_", mutates=("a", "b"))
    def swap_(a: Tensor, b: Tensor) -> None:
        c = a.clone()
        a.copy_(b * 2)
        b.copy_(c * 3)

    x = double(2, 3, grad=True)
    expected = torch.stack([2 * x[1], 3 * x[0]])

    def run(p):
        base = p * 1
        swap_(base[0], base[1])
        return base * base

    torch.testing.assert_close(run(x), expected**2)
    (gx,) = torch.autograd.grad(run(x).sum(), [x])
    torch.testing.assert_close(gx, torch.stack([18 * x[0], 8 * x[1]]))
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected**2)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), [x])[0], gx)


def test_mutation_of_a_list_with_gradients(namespace):
    @wb.op(f"{namespace}::step_", mutates="params")
    def step_(params: list[Tensor], grads: list[Tensor], lr: float) -> None:
        for p, g in zip(params, grads):
            p.sub_(g * g * lr)

    p, g = [double(3), double(2)], [double(3, grad=True), double(2, grad=True)]
    before = [t.clone() for t in p]
    step_(p, g, 0.5)
    torch.testing.assert_close([t.detach() for t in p], [b - 0.5 * t.detach() ** 2 for b, t in zip(before, g)])
    torch.testing.assert_close(torch.autograd.grad(sum(t.sum() for t in p), g), tuple(-t for t in g))
    step_([], [], 0.5)


def test_mutation_with_an_output_besides(namespace):
    @wb.op(f"{namespace}::push_", mutates="x")
    def push_(x: Tensor, y: Tensor) -> Tensor:
        old = x.clone()
        x.mul_(y)
        return old * y * 3

    x, y = double(3, grad=True), double(3, grad=True)

    def run(a, b):
        c = a * 1
        out = push_(c, b)
        return c, out

    c, out = run(x, y)
    torch.testing.assert_close((c, out), (x * y, 3 * x * y))
    gx, gy = torch.autograd.grad(c.sum() + out.sum(), [x, y])
    torch.testing.assert_close((gx, gy), (4 * y, 4 * x))
    assert gradcheck(run, (x, y))
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    gx, gy = torch.autograd.grad(sum(t.sum() for t in compiled(x, y)), [x, y])
    torch.testing.assert_close((gx, gy), (4 * y, 4 * x))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_in_place(add_, backend):
    torch._dynamo.reset()

    def run(a, b):
        c = a * 1
        add_(c, b, alpha=3.0)
        return c * c

    x, y = double(3, grad=True), double(3, grad=True)
    compiled = torch.compile(run, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x, y), (x + 3 * y) ** 2)
    gx, gy = torch.autograd.grad(compiled(x, y).sum(), [x, y])
    torch.testing.assert_close((gx, gy), (2 * (x + 3 * y), 6 * (x + 3 * y)))
    z, w = double(3), double(3)
    before = z.clone()
    torch.compile(lambda a, b: add_(a, b), fullgraph=True, backend=backend)(z, w)
    torch.testing.assert_close(z, before + w)


def test_transforms_of_an_op_in_place(add_):
    y = double(3)

    def f(a):
        b = a * a
        add_(b, y * a)
        return b

    x = double(3)
    torch.testing.assert_close(func.grad(lambda a: f(a).sum())(x), 2 * x + y)
    torch.testing.assert_close(func.jacrev(f)(x), torch.diag(2 * x + y))
    torch.testing.assert_close(func.jvp(f, (x,), (torch.ones_like(x),))[1], 2 * x + y)


# ---------------------------------------------------------------- the user's own backward


def test_backward_takes_what_it_names(product):
    @product.backward
    def _(grad_out, y, x, k):
        return grad_out * 7 * k, None

    x, y = double(3, grad=True), double(3, grad=True)
    gx, gy = torch.autograd.grad(product(x, y).sum(), [x, y])
    torch.testing.assert_close((gx, gy), (torch.full_like(x, 14.0), torch.zeros_like(y)))  # None is zero, compiled too
    torch.testing.assert_close(func.grad(lambda a: product(a, y.detach()).sum())(x.detach()), torch.full_like(x, 14.0))
    compiled = torch.compile(lambda a, b: product(a, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x, y).sum(), [x])[0], torch.full_like(x, 14.0))


def test_backward_sees_outputs_and_is_differentiable(namespace):
    @wb.op(f"{namespace}::exponential", returns="y")
    def exponential(x: Tensor) -> Tensor:
        return x.exp()

    @exponential.backward
    def _(grad_y, y):
        return grad_y * y

    x = double(3, grad=True)
    assert gradcheck(exponential, (x,))
    torch.testing.assert_close(torch.autograd.grad(exponential(x).sum(), [x])[0], x.exp())


def test_double_backward_through_a_backward_that_uses_the_argument(namespace):
    @wb.op(f"{namespace}::cube")
    def cube(x: Tensor) -> Tensor:
        return x**3

    @cube.backward
    def _(grad_out, x):
        return grad_out * 3 * x * x

    x = double(3, grad=True)
    assert gradgradcheck(cube, (x,))


def test_backward_that_returns_another_number_of_gradients(product):
    @product.backward
    def _(grad_out):
        return grad_out

    x, y = double(3, grad=True), double(3, grad=True)
    with pytest.raises(SchemaError, match=r"backward returned 1 gradients, the floating-point tensor arguments are 2"):
        product(x, y).sum().backward()


def test_backward_that_names_something_unknown(product):
    with pytest.raises(SchemaError, match=r"backward names 'grad_ot', which is no argument; did you mean 'grad_out'\?"):

        @product.backward
        def _(grad_ot): ...

    x, y = double(3, grad=True), double(3)
    torch.testing.assert_close(torch.autograd.grad(product(x, y).sum(), [x])[0], 2 * K * x * y)  # nothing changed


def test_backward_of_a_list(each):
    @each.backward
    def _(grad_out, xs, w):
        return [g * 5 for g in grad_out]

    a, b = double(3, grad=True), double(2, grad=True)
    ga, gb = torch.autograd.grad(sum(o.sum() for o in each([a, b])), [a, b])
    torch.testing.assert_close((ga, gb), (torch.full_like(a, 5.0), torch.full_like(b, 5.0)))


def test_backward_of_an_op_in_place(add_):
    @add_.backward
    def _(grad_x, alpha):
        return grad_x, grad_x * alpha * 10

    x, y = double(3, grad=True), double(3, grad=True)
    b = x * 1
    add_(b, y, alpha=2.0)
    gx, gy = torch.autograd.grad(b.sum(), [x, y])
    torch.testing.assert_close((gx, gy), (torch.ones_like(x), torch.full_like(y, 20.0)))


# ---------------------------------------------------------------- refused


def test_a_random_reference_has_no_gradient(namespace):
    @wb.op(f"{namespace}::noisy")
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    x = double(3, grad=True)
    assert noisy(x.detach()).shape == (3,)
    assert noisy.random
    assert not noisy.differentiable
    message = r"draws random numbers, so it has no gradient by default.*Write @op.backward, or take a seed"
    with pytest.raises(SchemaError, match=message):
        noisy(x)
    with pytest.raises(SchemaError, match=message):
        noisy.torch_op(x)
    with torch.no_grad():
        assert noisy(x).shape == (3,)


def test_a_random_reference_is_refused_at_its_first_call_with_a_gradient(namespace):
    @wb.op(f"{namespace}::noisy")
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    with pytest.raises(SchemaError, match="draws random numbers"):
        noisy(double(3, grad=True))


def test_a_random_reference_compiled(namespace):
    @wb.op(f"{namespace}::noisy")
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    compiled = torch.compile(noisy, fullgraph=True, backend="aot_eager")
    assert compiled(double(3)).shape == (3,)
    x = double(3, grad=True)
    with pytest.raises(Exception, match="draws random numbers"):
        compiled(x).sum().backward()


def test_a_random_reference_with_its_own_backward(namespace):
    @wb.op(f"{namespace}::noisy", returns="y")
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    @noisy.backward
    def _(grad_y, x, y):
        return grad_y * y / x

    x = double(3, grad=True)
    y = noisy(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), [x])[0], (y / x).detach())


def test_a_comparison_with_a_kernel_has_no_default_gradient(namespace):
    @wb.op(f"{namespace}::either")
    def either(x: Tensor) -> Tensor:
        return x * 2

    @either.compare
    def _(x, out):
        return (out - x * 2,)

    x = double(3, grad=True)
    torch.testing.assert_close(torch.autograd.grad(either(x).sum(), [x])[0], torch.full_like(x, 2.0))

    @either.kernel("cpu")
    def _(x):
        return x * 2

    with pytest.raises(SchemaError, match=r"has a @compare, .*Write @op.backward or a backward cell"):
        either(x)
    assert not either.differentiable

    @either.backward
    def _(grad_out):
        return grad_out * 2

    torch.testing.assert_close(torch.autograd.grad(either(x).sum(), [x])[0], torch.full_like(x, 2.0))


def test_an_op_without_reference_has_no_gradient(namespace):
    op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")
    assert not op.differentiable

    @op.fake
    def _(x):
        return torch.empty_like(x)

    @op.kernel("cpu")
    def _(x):
        return x * 2

    x = double(3, grad=True)
    out = op(x)
    torch.testing.assert_close(out.detach(), x.detach() * 2)
    with pytest.raises(SchemaError, match=r"has no gradient: it has no reference. Write @op.backward"):
        out.sum().backward()

    @op.backward
    def _(grad_out):
        return grad_out * 2

    torch.testing.assert_close(torch.autograd.grad(op(x).sum(), [x])[0], torch.full_like(x, 2.0))


def test_a_compared_op_takes_its_gradient_from_a_backward_cell(namespace):
    @wb.op(f"{namespace}::twice")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.compare(lambda x, out: out)

    @twice.cases
    def _(t):
        yield t(4, 8)

    head = "//! n = x.numel()\n"
    wb.cpp(twice, head + "//! out = empty_like(x)\nvoid twice(const float* x, float* out, int64_t n)"
                         " { for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i]; }")  # fmt: skip
    x = torch.randn(5, 3, requires_grad=True)
    with pytest.raises(wb.SchemaError, match="a backward cell"):
        twice(x)
    wb.cpp(f"{namespace}::twice.backward", head + "//! grad_x = empty_like(x)\nvoid backward(const float* grad_out,"
           " float* grad_x, int64_t n) { for (int64_t i = 0; i < n; ++i) grad_x[i] = 2 * grad_out[i]; }")  # fmt: skip
    (grad,) = torch.autograd.grad(twice(x).sum(), x)
    assert grad.equal(torch.full((5, 3), 2.0))


class Square(torch.autograd.Function):
    """As most are written: torch.func takes none without `setup_context`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


def test_a_reference_may_use_any_autograd_function(namespace):
    @wb.op(f"{namespace}::squared")
    def squared(x: Tensor, y: Tensor, idle: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return Square.apply(x) + y.detach(), (x > 0).sum(), x.detach() * 2

    x, y, idle = (torch.tensor([1.0, -3.0], requires_grad=True) for _ in range(3))
    out, _, cut = squared(x, y, idle)
    assert not cut.requires_grad
    found = torch.autograd.grad(out, [x, y, idle], torch.tensor([1.0, 10.0]))
    assert [g.tolist() for g in found] == [[2, -60], [0, 0], [0, 0]]
    (once,) = torch.autograd.grad(squared(x, y, idle)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="setup_context") as caught:
        torch.autograd.grad(once.sum(), x)
    assert cure("second derivatives", str(caught.value)).startswith("Give that Function `setup_context`")


def test_gradients_of_gradients_and_under_transforms_are_those_of_torch(namespace):
    """Autograd alone goes back once; torch.func, where more is asked for."""

    @wb.op(f"{namespace}::cube")
    def cube(x: Tensor) -> Tensor:
        return x**3

    x = torch.tensor([1.0, -2.0], requires_grad=True)
    (once,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad(once.sum(), x)
    assert once.tolist() == [3, 12] and twice.tolist() == [6, -12]
    assert torch.func.grad(lambda t: cube(t).sum())(x.detach()).tolist() == [3, 12]
    assert torch.func.hessian(lambda t: cube(t).sum())(x.detach()).diagonal().tolist() == [6, -12]
    _, product = torch.autograd.functional.vhp(lambda t: cube(t).sum(), x.detach(), torch.ones(2))
    assert product.tolist() == [6, -12]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach().requires_grad_(), torch.ones(2))
        (grad,) = torch.autograd.grad(cube(dual).sum(), dual, create_graph=True)
        assert torch.autograd.forward_ad.unpack_dual(grad).tangent.tolist() == [6, -12]


def test_a_decorated_backward_takes_what_it_names(namespace):
    @wb.op(f"{namespace}::doubled")
    def doubled(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    def logged(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            seen.append((args, sorted(kwargs)))
            return function(*args, **kwargs)

        return call

    seen: list = []

    @doubled.backward
    @logged
    def _(grad_out, k):
        return grad_out * k

    x = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(doubled(x, 3.0).sum(), x)[0].tolist() == [3, 3]
    assert seen == [((), ["grad_out", "k"])]
