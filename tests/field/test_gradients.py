"""What people met with gradients and transforms of their ops (field reports F28 to F33)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, func
from torch.autograd.gradcheck import GradcheckError

import workbench as wb
from tests import live
from tests.live import NORM, NORM_BACKWARD, SCALE, SCALE_BACKWARD
from workbench import SchemaError, describe
from workbench.check import quick

X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture(scope="module")
def scale():
    """An op whose forward and backward are kernels, which no transform can see into."""
    scale = wb.cpp(live.scale(), SCALE)
    wb.cpp("scale.backward", SCALE_BACKWARD)
    return scale


def rows(report, check: str) -> list:
    return [r for r in report.rows if r.check == check]


# ---------------------------------------------------------------- F28: torch.func


@pytest.mark.parametrize("transform", [
    lambda f, x: func.grad(lambda x: f(x).square().sum())(x) - 18 * x,
    lambda f, x: func.jacrev(f)(x[0]) - 3 * torch.eye(6),
    lambda f, x: func.jacfwd(f)(x[0]) - 3 * torch.eye(6),
    lambda f, x: func.jvp(f, (x,), (x,))[1] - 3 * x,
    lambda f, x: func.vjp(f, x)[1](x)[0] - 3 * x,
    lambda f, x: func.vmap(func.grad(lambda x: f(x).square().sum()))(x) - 18 * x,
    lambda f, x: func.hessian(lambda x: f(x).square().sum())(x[0]) - 18 * torch.eye(6),
    lambda f, x: func.grad(lambda x: func.grad(lambda x: (f(x) ** 3).sum())(x).sum())(x) - 162 * x,
], ids=["grad", "jacrev", "jacfwd", "jvp", "vjp", "vmap of grad", "hessian", "grad of grad"])  # fmt: skip
@pytest.mark.parametrize("through", ["handle", "torch.ops"])
def test_f28_every_transform_of_a_kernel_is_right_or_says_so(scale, transform, through):
    call = (lambda x: scale(x, 3.0)) if through == "handle" else (lambda x: torch.ops.live.scale(x, 3.0))
    assert transform(call, X).abs().max() < 1e-3


# ---------------------------------------------------------------- F29: no gradient, found out late


def test_f29_an_op_without_a_gradient_says_so_before_training(namespace):
    op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")
    op.kernel("cpu")(lambda x: x * 2)
    op.fake(lambda x: torch.empty_like(x))
    op.cases(lambda t: iter([(t(3),)]))
    assert not op.differentiable
    [row] = rows(op.check(), "gradients")
    assert (row.status, row.cure) == ("skip", "Write @op.backward, or a cell for f.backward.")
    assert "not differentiable" in row.detail
    assert any(s.slot == "backward" and "none" in s.runs for s in describe.card(op).slots)
    x = torch.ones(3, requires_grad=True)
    out = op(x)
    assert out.requires_grad  # never cut off from the graph without a word
    with pytest.raises(SchemaError, match="has no gradient.*Write @op.backward"):
        out.sum().backward()


def test_f29_integer_outputs_and_indices_take_none_and_the_rest_do(namespace):
    @wb.op(f"{namespace}::best", returns=("value", "index"))
    def best(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.max(-1)

    x = X.clone().requires_grad_()
    for call in (best, best.torch_op, torch.compile(lambda x: best(x), fullgraph=True, backend="aot_eager")):
        value, index = call(x)
        assert (value.requires_grad, index.requires_grad) == (True, False)
        assert torch.autograd.grad(value.sum(), x)[0].sum() == 4


# ---------------------------------------------------------------- F30: lists of tensors


WEIGHTED = """\
#include <vector>
std::vector<Tensor> weighted(std::vector<Tensor> xs, double k) {
  std::vector<Tensor> out;
  for (auto& x : xs) {
    Tensor y = torch::stable::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data_ptr<float>()[i] = float(k) * x.const_data_ptr<float>()[i];
    out.push_back(y);
  }
  return out;
}
"""


@pytest.mark.parametrize("native", [False, True], ids=["reference", "host kernel"])
@pytest.mark.parametrize("wants", [(True, False), (False, True), (True, True), (False, False)])
def test_f30_of_a_list_those_get_a_gradient_that_want_one(native, wants):
    live.gone("live::weighted")

    @wb.op("live::weighted")
    def weighted(xs: list[Tensor], k: float) -> list[Tensor]:
        return [x * k for x in xs]

    weighted.cases(lambda t: iter([([t(3), t(2, 2)], 3.0)]))
    if native:
        wb.cpp(weighted, WEIGHTED)
    xs = [torch.ones(3, requires_grad=wants[0]), torch.ones(2, 2, requires_grad=wants[1])]
    for call in (weighted, torch.compile(lambda xs, k: weighted(xs, k), fullgraph=True, backend="aot_eager")):
        out = call(xs, 3.0)
        if not any(wants):
            assert not any(y.requires_grad for y in out)
            continue
        for x in xs:
            x.grad = None
        sum(y.sum() for y in out if y.requires_grad).backward()
        assert [None if x.grad is None else x.grad.flatten()[0].item() for x in xs] == [
            3.0 if w else None for w in wants
        ]


@pytest.mark.parametrize(
    ("returned", "got"),
    [(lambda g: g[0], 1), (lambda g: [*g, g[0]], 3), (lambda g: (), 0)],
    ids=["one", "three", "none"],
)
def test_f30_another_number_of_gradients_is_counted(returned, got, namespace):
    @wb.op(f"{namespace}::pair")
    def pair(xs: list[Tensor]) -> list[Tensor]:
        return [x * 2 for x in xs]

    pair.backward(lambda grad_out: returned(grad_out))
    xs = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    with pytest.raises(SchemaError, match=rf"argument 'xs' holds 2 tensors, and backward returned {got} for it"):
        sum(y.sum() for y in pair(xs)).backward()


# ---------------------------------------------------------------- F31: float32 alone

# NORM takes `const float*`: there is no form for float64


def test_f31_a_right_kernel_for_float32_alone_is_not_told_wrong():
    norm = wb.cpp(live.norm(), NORM)
    wb.cpp("norm.backward", NORM_BACKWARD)
    with pytest.raises(RuntimeError, match="float64"):
        norm(X.double(), torch.ones(6, dtype=torch.float64))
    x, w = X.clone().requires_grad_(), torch.ones(6, requires_grad=True)
    with pytest.raises(GradcheckError), pytest.warns(UserWarning, match="double precision"):
        torch.autograd.gradcheck(norm, (x, w))  # what people run, and read as a wrong formula
    report = norm.check()
    assert report.ok
    assert {r.status for r in rows(report, "gradients")} == {"pass"}
    assert "as the reference's vjp in float64" in rows(report, "gradients")[0].detail  # which one was used
    [quickly], [fully] = rows(report, "gradcheck"), rows(quick.check(norm, "full"), "gradcheck")
    assert quickly.status == fully.status == "skip" and "noise" in quickly.detail
    assert "no case is in float64, and a form for it would have to be built" in quickly.detail
    assert "no form for float64" in fully.detail


def test_f31_a_wrong_one_for_float32_alone_is():
    norm = wb.cpp(live.norm(), NORM)
    wb.cpp("norm.backward", NORM_BACKWARD.replace("- d * from[c]", ""), cases="none")
    report = norm.check()
    assert not report.ok and {r.status for r in rows(report, "gradients")} == {"fail"}


# ---------------------------------------------------------------- F32: vmap


@pytest.mark.parametrize(
    ("in_dims", "shape"), [((0, None), (4, 6)), ((1, None), (4, 6)), ((-1, None), (2, 3, 4)), ((0, None), (0, 3))]
)
def test_f32_vmap_of_a_kernel_is_the_loop(scale, in_dims, shape, recwarn):
    x = torch.arange(float(torch.Size(shape).numel())).view(shape)
    assert torch.vmap(lambda x, k: scale(x, k), in_dims=in_dims)(x, 3.0).equal(x.movedim(in_dims[0], 0) * 3)
    assert torch.vmap(torch.vmap(lambda x: scale(x, 3.0)))(X[None].expand(2, 4, 6)).equal(X.expand(2, 4, 6) * 3)
    assert not [w for w in recwarn if "vmap" in str(w.message) or "batching" in str(w.message)]


def test_f32_vmap_of_an_op_in_place(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    x, y = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
    torch.vmap(lambda x, y: add_(x, y) or x)(x, y)
    assert x.equal(y)
    with pytest.raises(RuntimeError, match="(?i)vmap|batch"):  # nothing that has no place for the batch is written to
        torch.vmap(lambda y: add_(torch.zeros(4), y) or y)(y)


# ---------------------------------------------------------------- F33: autocast


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_f33_under_autocast_eager_and_compiled_code_do_the_same(how):
    norm = live.norm()  # the reference
    a, b, w = torch.randn(4, 8), torch.randn(8, 16), torch.randn(16)

    def run(a, b, w):
        return norm(a @ b, w)

    call = run if how == "eager" else torch.compile(run, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        got = call(a, b, w)
    product = a.bfloat16() @ b.bfloat16()
    wanted = norm.reference(product, w)  # mixed: bfloat16 and float32, with autocast off inside
    assert got.dtype == wanted.dtype == torch.float32
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)


def test_f33_a_kernel_that_has_no_form_for_mixed_dtypes_says_where_they_come_from():
    norm = wb.cpp(live.norm(), NORM)
    a, b, w = torch.randn(4, 8), torch.randn(8, 16), torch.randn(16)
    compiled = torch.compile(lambda a, b, w: norm(a @ b, w), fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(
            RuntimeError, match="x is bfloat16.*under autocast other ops hand on bfloat16: cast what comes in"
        ):
            norm(a @ b, w)
        with pytest.raises(RuntimeError, match="x is bfloat16"):
            compiled(a, b, w)
    torch.testing.assert_close(norm(a @ b, w), norm.reference(a @ b, w), rtol=1e-4, atol=1e-5)


def test_f33_a_kernel_that_has_the_form_takes_it_and_keeps_its_dtype():
    a, b = torch.randn(4, 8), torch.randn(8, 16)
    free = wb.cpp(live.scale(), SCALE)
    for call in (
        lambda a, b: free(a @ b, 3.0),
        torch.compile(lambda a, b: free(a @ b, 3.0), fullgraph=True, backend="aot_eager"),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            got = call(a, b)
        assert got.dtype == torch.bfloat16 and got.equal((a.bfloat16() @ b.bfloat16()) * 3)
