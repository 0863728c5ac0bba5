"""The names that torch knows of an op, what stands behind each, and how they are taken back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import SchemaError
from workbench.op import Op
from workbench.reference import Definition
from workbench.register.adopted import Adopted
from workbench.register.pullback import backward_schema
from workbench.register.registration import forward_schema, native_backward
from workbench.schema import parse


@pytest.fixture
def rms(namespace):
    @wb.op(f"{namespace}::rms", returns="y", saves="rstd")
    def rms(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    return rms


# ---------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    ("text", "options", "forward", "backward"),
    [
        (
            "lab::f(Tensor x, float k=2.0) -> Tensor",
            {},
            "lab::f_forward(Tensor x, float k=2.0) -> Tensor",
            "lab::f_backward(Tensor? grad_out, Tensor x, float k, Tensor out) -> Tensor",
        ),
        (
            "lab::f(Tensor x, Tensor? w=None, *, int k=1) -> (Tensor q, Tensor scale)",
            {"saves": ("rstd",)},
            "lab::f_forward(Tensor x, Tensor? w=None, *, int k=1) -> (Tensor, Tensor, Tensor)",
            (
                "lab::f_backward(Tensor? grad_q, Tensor? grad_scale, Tensor x, Tensor? w, int k, Tensor q, Tensor scale, "
                "Tensor rstd) -> (Tensor, Tensor)"
            ),
        ),
        (
            "lab::f_(Tensor(a!) x, Tensor y) -> ()",
            {"saves": ("old",)},
            "lab::f__forward(Tensor(a!) x, Tensor y) -> Tensor",
            "lab::f__backward(Tensor? grad_x, Tensor x, Tensor y, Tensor old) -> (Tensor, Tensor)",
        ),
        (
            "lab::f(Tensor[] xs) -> (Tensor[], int)",
            {},
            "lab::f_forward(Tensor[] xs) -> (Tensor[], int)",
            "lab::f_backward(Tensor?[] grad_out0, Tensor[] xs, Tensor[] out0) -> Tensor[]",
        ),
        (
            "lab::f(Tensor grad_out, Tensor x) -> Tensor",
            {},
            "lab::f_forward(Tensor grad_out, Tensor x) -> Tensor",
            "lab::f_backward(Tensor? grad_out_, Tensor grad_out, Tensor x, Tensor out) -> (Tensor, Tensor)",
        ),
    ],
)
def test_schemas_of_forward_and_backward(text, options, forward, backward):
    schema = parse(text, **options)
    assert forward_schema(schema) == forward
    assert backward_schema(schema) == backward
    for spelled in (forward, backward):
        torch._C.parse_schema(spelled)


def test_the_schema_of_a_partial_backward():
    schema = parse("lab::f(Tensor x) -> Tensor")
    assert (
        native_backward(schema, "f_partial")
        == "lab::f_partial_backward(Tensor? grad_out, Tensor x, Tensor out) -> Tensor"
    )


# ---------------------------------------------------------------- the four names


def test_the_forward_name_also_returns_what_is_saved(rms, namespace):
    x, w = torch.randn(3, 4), torch.randn(4)
    y, rstd = getattr(torch.ops, namespace).rms_forward(x, w)
    torch.testing.assert_close(y, rms(x, w))
    assert (rstd.shape, rstd.dtype) == ((0,), torch.uint8)  # nothing was saved: the reference ran

    @rms.kernel("cpu")
    def _(x, w, eps=1e-6):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return x * rstd * w, rstd

    y, rstd = getattr(torch.ops, namespace).rms_forward(x, w)
    torch.testing.assert_close(rstd, torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    torch.testing.assert_close(rms(x, w), y)


def test_a_backward_sees_what_the_forward_saved(rms):
    seen = []

    @rms.kernel("cpu")
    def _(x, w, eps=1e-6):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return x * rstd * w, rstd

    @rms.backward
    def _(grad_y, x, w, rstd):
        seen.append(rstd.shape)
        d = (grad_y * w * x).mean(-1, keepdim=True) * rstd**3
        return grad_y * w * rstd - d * x, (grad_y * x * rstd).sum(0)

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    found = torch.autograd.grad(rms(x, w).square().sum(), [x, w])
    torch.testing.assert_close(found, torch.autograd.grad(rms.reference(x, w).square().sum(), [x, w]))
    assert seen == [(3, 1)]


def test_the_backward_name(rms, namespace):
    x, w = torch.randn(3, 4), torch.randn(4)
    y, saved = getattr(torch.ops, namespace).rms_forward(x, w)
    gx, gw = getattr(torch.ops, namespace).rms_backward(torch.ones_like(y), x, w, 1e-6, y, saved)
    assert (gx.shape, gw.shape) == (x.shape, w.shape)
    gx, gw = getattr(torch.ops, namespace).rms_backward(None, x, w, 1e-6, y, saved)
    assert gx.count_nonzero() == gw.count_nonzero() == 0
    x = x.clone().requires_grad_()
    torch.library.opcheck(
        getattr(torch.ops, namespace).rms_backward.default, (torch.ones_like(y), x, w, 1e-6, y, saved)
    )


def test_the_layout_name_gives_the_references_strides(namespace):
    @wb.op(f"{namespace}::like")
    def like(x: Tensor, k: float = 2.0) -> tuple[Tensor, Tensor]:
        return torch.empty_like(x).copy_(x * k), x.t().contiguous()

    layout = getattr(torch.ops.wb_layout, f"{namespace}__like")
    x = torch.randn(3, 5).t()
    for _ in range(2):
        a, b = layout(x)
        assert (a.shape, a.stride(), b.shape, b.stride()) == ((5, 3), (1, 5), (3, 5), (5, 1))
    a, _ = layout(torch.randn(3, 5).double())
    assert (a.stride(), a.dtype) == ((5, 1), torch.float64)
    (g,) = [getattr(torch.ops.wb_layout, f"{namespace}__like_backward")(None, None, x, 2.0, a, b)]
    assert g.stride() == x.stride()


def test_a_layout_follows_the_fake(namespace):
    """A launcher must give what compiled callers were told."""

    @wb.op(f"{namespace}::like")
    def like(x: Tensor) -> Tensor:
        return x * 2

    x, layout = torch.randn(3, 5).t(), getattr(torch.ops.wb_layout, f"{namespace}__like")
    assert layout(x).stride() == (1, 5)
    like.fake(lambda x: x.new_empty(x.shape))
    assert layout(x).stride() == (3, 1)
    like.fake(lambda x: torch.empty_like(x))
    assert layout(x).stride() == (1, 5)


def test_everything_wears_exact_strides(rms):
    for op in (rms.public_op, rms.forward_op, rms.backward_op):
        assert torch.Tag.needs_exact_strides in op.tags


def test_a_compiled_caller_gives_the_op_the_strides_of_eager(namespace):
    seen = []

    @wb.op(f"{namespace}::strides")
    def strides(x: Tensor) -> Tensor:
        seen.append(x.stride())
        return x * 1

    compiled = torch.compile(lambda a, b: strides((a @ b).contiguous()), fullgraph=True)
    a, b = torch.randn(7, 13), torch.randn(13, 11)
    torch.testing.assert_close(compiled(a, b), a @ b)
    assert seen[-1] == (11, 1)


# ---------------------------------------------------------------- mutation


@pytest.fixture
def add_(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor, alpha: float = 1.0) -> None:
        x.add_(y, alpha=alpha)

    return add_


def test_opcheck_of_an_op_in_place(add_):
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(6, 4)[::2]):
        found = torch.library.opcheck(add_.torch_op, (x, torch.randn(3, 4)))
        assert set(found.values()) == {"SUCCESS"}
    torch.library.opcheck(add_.torch_op, (torch.randn(3), torch.randn(3, requires_grad=True)), {"alpha": 2.0})


def test_functionalised(add_):
    graphs = []

    def f(x, y):
        z = x + 1
        add_(z, y)
        add_(z[0], y[0], alpha=2.0)
        return z

    def compiler(gm, _):
        graphs.append(gm.code)
        return gm.forward

    from torch._dynamo.backends.common import aot_autograd

    x, y = torch.randn(2, 3), torch.randn(2, 3)
    out = torch.compile(f, fullgraph=True, backend=aot_autograd(fw_compiler=compiler))(x, y)
    expected = x + 1 + y
    expected[0] += 2 * y[0]
    torch.testing.assert_close(out, expected)
    assert "auto_functionalized" in graphs[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_two_views_of_one_base_compiled(namespace, backend):
    @wb.op(f"{namespace}::both_", mutates=("a", "b"))
    def both_(a: Tensor, b: Tensor) -> None:
        a.add_(1)
        b.mul_(2)

    def f(base):
        both_(base[0], base[1])

    eager, compiled = torch.ones(2, 3), torch.ones(2, 3)
    f(eager)
    torch.compile(f, fullgraph=True, backend=backend)(compiled)
    assert eager.tolist() == compiled.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_lists_that_are_mutated_compiled(namespace):
    @wb.op(f"{namespace}::step_", mutates="ps")
    def step_(ps: list[Tensor], lr: float) -> None:
        for p in ps:
            p.mul_(1 - lr)

    ps = [torch.ones(3), torch.ones(2)]
    torch.compile(lambda a: step_(a, 0.5), fullgraph=True)(ps)
    assert [p.tolist() for p in ps] == [[0.5] * 3, [0.5] * 2]
    assert all(p._version > 0 for p in ps)


# ---------------------------------------------------------------- names that are taken, and given back


def test_a_name_that_is_somebody_elses(namespace):
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define("taken(Tensor x) -> Tensor")
    library.define("f_backward(Tensor x) -> Tensor")
    with pytest.raises(
        SchemaError, match=rf"the name {namespace}::taken is already taken by another op; choose another"
    ):

        @wb.op(f"{namespace}::taken")
        def taken(x: Tensor) -> Tensor:
            return x

    with pytest.raises(SchemaError, match=rf"{namespace}::f_backward is already taken by another op, and {namespace}::f needs it for its own backward"):  # fmt: skip

        @wb.op(f"{namespace}::f")
        def f(x: Tensor) -> Tensor:
            return x

    assert f"{namespace}::taken" not in wb.ops
    assert f"{namespace}::f" not in wb.ops
    library._destroy()

    @wb.op(f"{namespace}::f")
    def f(x: Tensor) -> Tensor:
        return x + 1

    assert f(torch.zeros(1)).item() == 1


def test_an_op_whose_name_is_the_backward_of_another(namespace):
    @wb.op(f"{namespace}::g")
    def g(x: Tensor) -> Tensor:
        return x * 1

    with pytest.raises(SchemaError, match=rf"the name {namespace}::g_backward is already taken"):

        @wb.op(f"{namespace}::g_backward")
        def g_backward(x: Tensor) -> Tensor:
            return x

    assert g(torch.ones(1)).item() == 1


def test_kernels_come_and_go(rms):
    registration = rms.registration
    x, w = torch.ones(2, 3), torch.ones(3)
    before = rms.torch_op(x, w)
    registration.set_kernel("rms", "cpu", lambda x, w, eps=1e-6: torch.full_like(x, 7.0))
    assert rms.torch_op(x, w).tolist() == [[7.0] * 3] * 2
    registration.set_kernel("rms", "cpu", lambda x, w, eps=1e-6: torch.full_like(x, 8.0))
    assert rms.torch_op(x, w).tolist() == [[8.0] * 3] * 2
    registration.clear_kernel("rms", "cpu")
    registration.clear_kernel("rms", "cpu")
    torch.testing.assert_close(rms.torch_op(x, w), before)


def test_a_name_that_a_library_takes_back_is_free_for_what_graphs_look_into(namespace):
    """torch keeps one such rule for a name, and refuses the next one while it stands."""
    library = torch.library.Library(namespace, "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x * 2, "CPU")
    definition = Definition(parse(f"{namespace}::f(Tensor x) -> Tensor"))
    op = Op(definition, Adopted)
    for _ in range(2):
        op.registration.inlined.put(f"{namespace}::f", "cpu", lambda args, keywords: args[0] * 2)
        op.registration.destroy()
        op.registered_by(Adopted, definition)
    assert op(torch.ones(2)).tolist() == [2.0, 2.0]
