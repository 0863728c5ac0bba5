"""What people met while checking ops (field reports F22 to F27): faults that a default check passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.live import SCALE

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
SWAP = """\
//! n = a.numel()
//! sa = a.stride(0)
//! sb = b.stride(0)
void swap_(float* a, float* b, int64_t n, int64_t sa, int64_t sb) {
  for (int64_t i = 0; i < n; ++i) { float t = a[i * sa]; a[i * sa] = b[i * sb]; b[i * sb] = t; }
}
"""


def rows(report, check: str) -> list:
    found = [r for r in report.rows if r.check == check]
    assert found, f"no row {check}: {[r.check for r in report.rows]}"
    return found


# ---------------------------------------------------------------- F22: views of one base


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", [lambda t: (t[0], t[1]), lambda t: (t[:, 0], t[:, 2]), lambda t: (t[0], t[0])],
                         ids=["rows", "columns", "the same"])  # fmt: skip
def test_f22_two_views_of_one_base_compiled_are_as_in_eager(view, backend, namespace):
    @wb.op(f"{namespace}::swap_", mutates=("a", "b"))
    def swap_(a: Tensor, b: Tensor) -> None:
        c = a.clone()
        a.copy_(b)
        b.copy_(c)

    @swap_.cases
    def _(t):
        base = t(3, 4)
        yield t(5), t(5)
        yield wb.case("views", base[0], base[1])

    wb.cpp(swap_, SWAP)

    def run(base: Tensor) -> Tensor:
        swap_(*view(base))
        return base * 2

    base = torch.arange(12.0).view(3, 4)
    eager, compiled = base.clone(), base.clone()
    results = run(eager), torch.compile(run, fullgraph=True, backend=backend)(compiled)
    wanted = base.clone()
    one, other = view(wanted)
    held = one.clone()
    one.copy_(other)
    other.copy_(held)
    for got, result in ((eager, results[0]), (compiled, results[1])):
        assert torch.equal(got, wanted) and torch.equal(result, wanted * 2)


# ---------------------------------------------------------------- F23: layouts that a compiler chooses


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [
    lambda a, b: (a @ b).contiguous(), lambda a, b: a @ b, lambda a, b: (a @ b).t().contiguous().t(), lambda a, b: (a @ b)[:, 1:],
    lambda a, b: torch.nn.functional.pad(a @ b, (0, 3))[:, :-3],
], ids=["contiguous", "product", "transposed", "slice", "padded"])  # fmt: skip
def test_f23_a_kernel_on_dense_pointers_reads_what_it_was_given_whatever_the_layout(make, backend):
    """Inner sizes of 13: no multiple of 8 or 16, which is when layouts are padded."""
    scale = wb.cpp(live.scale(), SCALE)
    a, b = torch.randn(7, 5), torch.randn(5, 13)

    def run(a, b):
        return scale(make(a, b), 3.0) + 1

    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend=backend)(a, b), make(a, b) * 3 + 1)


# ---------------------------------------------------------------- F24: sizes that depend on values

VALUES = [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 5.0, 0.0]]  # two, none and one


@pytest.mark.parametrize("values", VALUES, ids=["two", "none", "one"])
def test_f24_outputs_whose_size_depends_on_values_are_compiled_and_differentiable(values, namespace):
    @wb.op(f"{namespace}::nonzeros")
    def nonzeros(x: Tensor) -> Tensor:
        return x[x > 0]

    x = torch.tensor(values, requires_grad=True)
    compiled = torch.compile(lambda x: nonzeros(x) * 2, fullgraph=True, backend="aot_eager")
    for call in (lambda x: nonzeros(x) * 2, compiled):
        assert call(x).tolist() == [2 * v for v in values if v > 0]
        (g,) = torch.autograd.grad(call(x).sum(), x)
        assert g.tolist() == [2.0 if v > 0 else 0.0 for v in values]


def test_f24_a_reference_that_looks_at_values_says_which_fake_to_write(namespace):
    @wb.op(f"{namespace}::ones")
    def ones(x: Tensor) -> Tensor:
        return torch.ones(int(x.sum()))

    ones.cases(lambda t: iter([(t(3, low=1, high=4),)]))
    x = torch.tensor([1.0, 2.0])
    assert torch.compile(lambda x: ones(x) * 2, backend="aot_eager")(x).shape == (3,)  # in two graphs
    torch._dynamo.reset()
    with pytest.raises(Exception, match="(?s)gives depends on the values.*@ones.fake.*new_dynamic_size"):
        torch.compile(lambda x: ones(x) + 2, backend="aot_eager", fullgraph=True)(x)
    [row] = rows(ones.check(), "fake")
    assert row.status == "fail" and "new_dynamic_size()" in row.cure

    @ones.fake  # as it was told
    def _(x):
        n = torch.library.get_ctx().new_dynamic_size()
        return x.new_empty(n)

    whole = torch.compile(lambda x: ones(x) * 3, backend="aot_eager", fullgraph=True)
    assert [whole(torch.tensor(v)).numel() for v in ([1.0, 2.0], [0.0, 0.0], [1.0, 0.0])] == [3, 0, 1]
    assert rows(ones.check(), "fake")[0].status == "pass"


# ---------------------------------------------------------------- F25: no fake


@pytest.mark.parametrize(("schema", "kernel", "inputs", "offered"), [
    ("f(Tensor x) -> Tensor", lambda x: x * 2, [(3,), (2, 5)], "f.fake(lambda x: torch.empty_like(x))"),
    ("f(Tensor x, Tensor w) -> Tensor", lambda x, w: x @ w, [(3, 4), (4, 5)], "f.fake(lambda x, w: x.new_empty((x.shape[0], w.shape[1])))"),
    ("f(Tensor x, int n=2) -> Tensor", lambda x, n=2: x.new_zeros(x.shape[-1] * n, dtype=torch.int32), [(3, 4), (6,)],
     "f.fake(lambda x, n=2: x.new_empty((x.shape[-1] * n,), dtype=torch.int32))"),
    ("f(Tensor x) -> (Tensor, Tensor)", lambda x: (x.sum(-1), x.argmax(0)), [(3, 4), (5, 2)],
     "f.fake(lambda x: (x.new_empty((x.shape[0],)), x.new_empty((x.shape[1],), dtype=torch.int64)))"),
    ("f(Tensor x) -> Tensor", lambda x: x[x > 0], [(9,), (7,)], ""),
])  # fmt: skip
def test_f25_an_op_without_a_fake_is_offered_one_that_fits_its_cases(schema, kernel, inputs, offered, namespace):
    op = wb.op(f"{namespace}::{schema}")
    op.kernel("cpu")(kernel)

    @op.cases
    def _(t):
        several = len(op.schema.tensors) > 1
        yield from [tuple(t(*s) for s in inputs)] if several else [(t(*s),) for s in inputs]

    [row] = rows(op.check(), "fake")
    assert row.status == "fail" and "has no fake" in row.detail
    if not offered:
        assert "@op.fake" in row.cure and "Inferred" not in row.cure
        return
    assert f"`{offered}`" in row.cure and "Inferred from " in row.cure
    exec(offered, {"f": op, "torch": torch})  # as a person would paste it
    assert rows(op.check(), "fake")[0].status == "pass"


def test_f25_a_cell_without_a_reference_has_the_fake_of_its_directives():
    live.gone("live::born")
    born = wb.cpp("live::born", SCALE.replace("scale", "born"))
    born(torch.ones(3), 2.0)
    meta = born(torch.empty(4, 6, device="meta"), 2.0)
    assert (meta.shape, meta.device.type) == ((4, 6), "meta")


# ---------------------------------------------------------------- F26: SUCCESS that says nothing


@pytest.fixture
def triple(namespace):
    @wb.op(f"{namespace}::triple")
    def triple(x: Tensor) -> Tensor:
        return x * 3

    triple.cases(lambda t: iter([(t(4, 8),)]))
    return triple


def test_f26_a_wrong_backward_is_found_although_opcheck_passes_with_and_without_gradients(triple):
    triple.backward(lambda grad_out: grad_out * 7)
    for grad in (False, True):
        said = torch.library.opcheck(triple.torch_op, (torch.randn(4, 8, requires_grad=grad),))
        assert set(said.values()) == {"SUCCESS"}
    report = triple.check()
    assert not report.ok
    [row] = rows(report, "gradients")
    assert row.status == "fail" and "grad_x" in row.detail and row.cure


def test_f26_a_wrong_kernel_is_refused_before_any_check(triple):
    with pytest.raises(wb.TrialError, match="grad_x") as raised:
        wb.cpp(f"{triple.qualname}.backward", "//! n = x.numel()\n//! grad_x = empty_like(x)\n"
               "void backward(const float* grad_out, float* grad_x, int64_t n) { for (int64_t i = 0; i < n; ++i) grad_x[i] = 7 * grad_out[i]; }")  # fmt: skip
    assert raised.value.kind == "mismatch"


def test_f26_every_row_says_what_it_proved_on_what_and_what_it_did_not(triple):
    report = triple.check()
    assert report.ok
    by = {r.check: r.detail for r in report.rows if r.status == "pass"}
    assert {
        "agreement",
        "schema",
        "autograd registration",
        "fake",
        "gradients",
        "gradcheck",
        "compile",
        "compiled = eager",
    } <= set(by)
    for check in ("schema", "fake"):
        assert "on plain inputs and inputs that require gradients" in by[check]
    for check in ("schema", "autograd registration", "fake", "gradients", "compile", "compiled = eager"):
        assert ";" in by[check] or " not " in by[check], by[check]  # what it does not prove
    assert all(r.case for r in report.rows if r.status == "pass")


# ---------------------------------------------------------------- F27: dtypes


def test_f27_a_kernel_of_another_dtype_in_half_alone_is_found(namespace):
    @wb.op(f"{namespace}::wide")
    def wide(x: Tensor) -> Tensor:
        return x * 1.5

    @wide.cases(dtypes=(torch.float32, torch.float16))
    def _(t):
        yield (t(4, 8),)

    wrong = """\
//! n = x.numel()
//! out = empty(x.shape, dtype=float32)
template <typename T>
void wide(const T* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = float(x[i]) * 1.5f;
}
"""
    with pytest.raises(wb.TrialError, match="float16.*is float32, the reference gives float16"):
        wb.cpp(wide, wrong)
    wb.cpp(
        wide,
        wrong.replace(", dtype=float32", "")
        .replace("float* out", "T* out")
        .replace("float(x[i]) * 1.5f", "T(float(x[i]) * 1.5f)"),
    )
    assert wide(torch.ones(2, dtype=torch.float16)).dtype == torch.float16


def test_f27_a_fake_of_another_dtype_is_found_in_that_dtype_alone(namespace):
    @wb.op(f"{namespace}::wide")
    def wide(x: Tensor) -> Tensor:
        return x.float() * 1.5

    wide.fake(lambda x: torch.empty_like(x))
    status = {}
    for dtype in (torch.float32, torch.float16):
        wide.cases(lambda t: iter([(t(4, 8),)]), dtypes=dtype)
        status[dtype] = rows(wide.check(), "fake")[0].status
    assert status == {torch.float32: "pass", torch.float16: "fail"}


@pytest.mark.parametrize(
    "x",
    [torch.tensor(2.5), torch.ones(()), torch.ones(1), torch.ones(0), torch.ones(2, 0, 3)],
    ids=lambda x: str(tuple(x.shape)),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("k", [2, 2.0, True])
def test_f27_no_dimensions_and_plain_numbers_keep_the_dtype(x, dtype, k):
    scale = wb.ops.get("live::scale") or live.scale()
    if not scale.runs().number:
        wb.cpp(scale, SCALE)
    got = scale(x.to(dtype), k)
    assert (got.dtype, got.shape) == (dtype, x.shape) and torch.equal(got, x.to(dtype) * k)
