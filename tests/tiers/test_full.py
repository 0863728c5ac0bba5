"""Cells on at::Tensor, as people paste them: built, tried, installed, edited, broken, repaired."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import slots
from workbench.build import full
from workbench.directives import parse
from workbench.errors import BuildError, SchemaError, TrialError
from workbench.schema import parse as schema
from workbench.source import Source, functions
from workbench.tiers import FullKernel, kernel

# ---------------------------------------------------------------- text, without a compiler


def made(text: str, spelled: str, slot: str = "forward", *, saves=(), function: str = "") -> FullKernel:
    found = kernel(Source(text, "cpp", "cell [3]", 2), schema(spelled, saves=saves), slot, function=function)
    assert isinstance(found, FullKernel)
    return found


def wrapper(text: str, spelled: str, slot: str = "forward", **options) -> str:
    return made(text, spelled, slot, **options)._after


def test_the_wrapper_of_a_function():
    text = "namespace a {\nat::Tensor f(const at::Tensor& x, int by) { return x; }\n}"
    assert wrapper(text, "lab::f(Tensor x, SymInt by=2) -> Tensor") == (
        '#line 3 "cell [3]"\n'
        "namespace wb_cell {\n"
        "using F = decltype(&::a::f);\n"
        "static void run(torch::jit::Stack* stack, size_t shown) {\n"
        "  constexpr size_t count = 2;\n"
        "  const c10::IValue* v = stack->data() + (stack->size() - count);\n"
        "  wb::arrive(v, {0});\n"
        "  at::AutoDispatchBelowADInplaceOrView below;\n"
        "  wb::Values out;\n"
        '  wb::GivenTo<F, 0> a0(v[0], "x");\n'
        '  wb::GivenTo<F, 1> a1(v[1], "by");\n'
        "  auto all = ::a::f(static_cast<wb::ParameterOf<F, 0>&&>(a0.value), static_cast<wb::ParameterOf<F, 1>&&>(a1.value));\n"
        "  wb::put_all(out, std::move(all));\n"
        "  wb::apart(out, v, count);\n"
        '  wb::strides(out, 1, "wb_layout::lab__f", v, count);\n'
        '  wb::give(stack, count, out, 1, shown, "lab::f (cpp)");\n'
        "}\n"
        "static void entry0(const c10::OperatorHandle&, torch::jit::Stack* stack) { run(stack, 1); }\n"
        "static void entry1(const c10::OperatorHandle&, torch::jit::Stack* stack) { run(stack, 1); }\n"
        "}  // namespace wb_cell\n"
        'WB_FULL_MODULE("lab", CPU, '
        'm.impl("f", torch::CppFunction::makeFromBoxedFunction<&wb_cell::entry0>()); '
        'm.impl("f_forward", torch::CppFunction::makeFromBoxedFunction<&wb_cell::entry1>());)'
    )


def test_parameters_bind_by_name_and_by_alias():
    text = "//! epsilon = eps\nat::Tensor f(double epsilon, at::Tensor x) { return x; }"
    found = wrapper(text, "lab::f(Tensor x, float eps) -> Tensor")
    assert 'a0(v[1], "eps")' in found and 'a1(v[0], "x")' in found


def test_what_is_saved_stands_behind_the_outputs():
    text = "//! kept = empty_like(x)\nstd::tuple<at::Tensor, at::Tensor> f(at::Tensor x) { return {x, x}; }"
    found = wrapper(text, "lab::f(Tensor x) -> Tensor", saves=("kept",))
    assert "entry0(const c10::OperatorHandle&, torch::jit::Stack* stack) { run(stack, 1); }" in found
    assert "entry1(const c10::OperatorHandle&, torch::jit::Stack* stack) { run(stack, 2); }" in found


@pytest.mark.parametrize("type_", [
    "at::Tensor", "const at::Tensor&", "at::Tensor&", "torch::Tensor", "std::optional<at::Tensor>",
    "const std::optional<torch::Tensor>&", "c10::optional<at::Tensor>",
])  # fmt: skip
def test_types_that_take_a_tensor(type_):
    wrapper(f"torch::Tensor f({type_} x) {{ return {{}}; }}", "lab::f(Tensor x) -> Tensor")


@pytest.mark.parametrize(("type_", "argument"), [
    ("at::TensorList", "Tensor[]"), ("std::vector<at::Tensor>", "Tensor[]"), ("const std::vector<torch::Tensor>&", "Tensor[]"),
    ("at::ArrayRef<at::Tensor>", "Tensor[]"), ("const c10::List<std::optional<at::Tensor>>&", "Tensor?[]"),
    ("at::IntArrayRef", "SymInt[]"), ("c10::ArrayRef<int64_t>", "int[]"), ("std::vector<int>", "int[]"),
    ("at::OptionalIntArrayRef", "SymInt[]?"), ("std::array<bool, 2>", "bool[]"), ("at::ArrayRef<double>", "float[]"),
    ("int", "SymInt"), ("uint8_t", "int"), ("std::optional<int64_t>", "int?"), ("float", "float"),
    ("std::optional<double>", "float?"), ("bool", "bool"), ("const std::string&", "str"), ("std::string_view", "str"),
    ("at::ScalarType", "ScalarType"), ("c10::Device", "Device"), ("const at::Scalar&", "Scalar"),
])  # fmt: skip
def test_types_that_take_other_arguments(type_, argument):
    wrapper(f"at::Tensor f(at::Tensor x, {type_} k) {{ return x; }}", f"lab::f(Tensor x, {argument} k) -> Tensor")


@pytest.mark.parametrize(("signature", "arguments", "message"), [
    ("(at::Tensor x, std::vector<float> k)", "Tensor x, float k", "'std::vector<float> k' cannot take k, which is a float.*write it as 'double k'"),
    ("(at::Tensor x, double k)", "Tensor x, float? k", "write it as 'std::optional<double> k'"),
    ("(at::Tensor x, at::Tensor k)", "Tensor x, Tensor[] k", "std::vector<at::Tensor> k"),
    ("(at::Tensor x, int k)", "Tensor x, str k", "std::string k"),
    ("(at::Tensor x, float* k)", "Tensor x, Tensor k", "pointer"),
    ("(at::Tensor x, double kk)", "Tensor x, float k", "did you mean 'k'"),
    ("(at::Tensor x, std::complex<float> k)", "Tensor x, float k", "cannot take k"),
])  # fmt: skip
def test_a_type_that_does_not_fit_is_named_on_its_line(signature, arguments, message):
    with pytest.raises(SchemaError, match=message) as caught:
        wrapper(f"// note\nat::Tensor f{signature} {{ return x; }}", f"lab::f({arguments}) -> Tensor")
    assert caught.value.line == 3


@pytest.mark.parametrize(("text", "function", "message"), [
    ("at::Tensor f(at::Tensor x) { return x; }\nat::Tensor f(int k) { return {}; }", "", "which function is f"),
    ("at::Tensor a(at::Tensor x) { return x; }\nat::Tensor b(at::Tensor x) { return x; }", "", "--entry"),
    ("at::Tensor a(at::Tensor x) { return x; }", "g", "no function is called 'g'"),
    ("template <typename T> at::Tensor f(at::Tensor x) { return x; }", "", "is a template"),
    ("std::tuple<at::Tensor, at::Tensor> f(at::Tensor x) { return {x, x}; }", "", "2 results.*needs 1: out"),
])  # fmt: skip
def test_an_entry_that_is_not_clear(text, function, message):
    with pytest.raises(SchemaError, match=re.compile(message, re.DOTALL)):
        wrapper(text, "lab::f(Tensor x) -> Tensor", function=function)


def test_a_backward_returns_one_gradient_for_each_floating_argument():
    text = "at::Tensor backward(at::Tensor grad_out, at::Tensor x) { return grad_out; }"
    with pytest.raises(SchemaError, match="1 gradients; the floating-point tensor arguments are x, w"):
        wrapper(text, "lab::f(Tensor x, Tensor w) -> Tensor", "backward")


def test_blocks_that_are_left_out_are_told():
    text = "// TORCH_LIBRARY(no, m)\nat::Tensor f(at::Tensor x) { return x; }\nTORCH_LIBRARY_IMPL(their_library, CPU, m) {}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"
    assert full.left_out(Source(text, "cpp", first_line=2)) == (
        (4, "TORCH_LIBRARY_IMPL(their_library)"), (5, "PYBIND11_MODULE(TORCH_EXTENSION_NAME)"),
    )  # fmt: skip


def test_a_thunk_for_outputs_that_directives_make():
    text = "//! out = empty_like(x)\nvoid f(at::Tensor x, at::Tensor& out, float k) {}"
    source, spelled = Source(text, "cpp", "cell [3]", 2), schema("lab::f(Tensor x, float k) -> Tensor")
    found = full.thunk(source, parse(source, spelled), functions(text, "cpp", 2)[0])
    assert 'a1(wb::borrow(v[2].p), "out")' in found and 'a2(c10::IValue(v[1].f), "k")' in found


# ---------------------------------------------------------------- really built

HEAD = "#include <torch/extension.h>\n"
SCALE = (
    HEAD
    + """
torch::Tensor scale(const torch::Tensor& x, float k) {
  auto c = x.contiguous();
  auto out = torch::empty_like(c);
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "scale", [&] {
    auto* p = c.const_data_ptr<scalar_t>();
    auto* q = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < c.numel(); ++i) q[i] = p[i] * k + 1;
  });
  return out;
}
TORCH_LIBRARY_IMPL(their_library, CPU, m) { m.impl("scale", TORCH_FN(scale)); }
"""
)


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k + 1

    @scale.cases(dtypes=(torch.float32, torch.float64))
    def _(t):
        yield t(4, 128)
        yield wb.case("odd", t(5, 123), 3.0)
        yield wb.case("turned", t(5, 7).T, 3.0)

    return scale


def test_a_cell_is_built_edited_broken_and_repaired(scale):
    wb.cpp(scale, SCALE)
    x = torch.arange(6.0).view(2, 3)
    assert scale.runs().tier == "full" and torch.equal(scale(x, 3.0), x * 3 + 1)
    assert torch.equal(scale(x.double().T), x.double().T * 2 + 1)  # a dtype that came later, and other strides
    assert scale(x.T).stride() == (x.T * 2).stride()
    assert "left out" in str([str(d) for d in scale.runs().kernel.diagnostics])
    with pytest.raises(TrialError, match="differs") as refused:
        wb.cpp(scale, SCALE.replace("k + 1", "k + 2"))
    assert "still runs v1" in str(refused.value) and torch.equal(scale(x), x * 2 + 1)
    with pytest.raises(BuildError) as broken:
        wb.cpp(scale, SCALE.replace("k + 1;", "k + 1"))
    assert broken.value.line == 9 and torch.equal(scale(x), x * 2 + 1)
    wb.cpp(scale, SCALE.replace("k + 1", "k + 1.0"))
    assert scale.runs().number == 3 and torch.equal(scale(x), x * 2 + 1)
    scale.restore(1)
    assert torch.equal(scale(x), x * 2 + 1)
    with pytest.raises(RuntimeError, match="k = 1e\\+300 does not fit a float"):
        scale(x, 1e300)
    scale.restore(0)
    assert scale.slots == {} and torch.equal(scale(x), x * 2 + 1)


EXAMPLE = (
    HEAD
    + """namespace theirs {
template <typename scalar_t> int64_t count_row(const scalar_t* row, int64_t n, float limit) {
  int64_t m = 0;
  for (int64_t i = 0; i < n; ++i) m += row[i] > limit;
  return m;
}
at::Tensor count_above_kernel(const at::Tensor& x, double limit) {
  TORCH_CHECK(x.dim() == 2, "x should be [rows, cols]");
  auto c = x.contiguous();
  auto out = at::empty({c.size(0)}, c.options().dtype(at::kLong));
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "count_above", [&] {
    for (int64_t r = 0; r < c.size(0); ++r)
      out.data_ptr<int64_t>()[r] = count_row(c.data_ptr<scalar_t>() + r * c.size(1), c.size(1), limit);
  });
  return out;
}
TORCH_LIBRARY_IMPL(their_library, CPU, m) { m.impl("count_above", TORCH_FN(count_above_kernel)); }   // skipped
}
"""
)


def test_a_new_op_from_its_signature(namespace):
    op = wb.cpp(f"{namespace}::count_above", EXAMPLE, entry="count_above_kernel")
    assert str(op.schema) == f"{namespace}::count_above(Tensor x, float limit) -> Tensor"
    x = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 9.0]])
    assert op(x, 1.5).tolist() == [2, 1]
    assert op(x.double().T.contiguous().T, 0.5).tolist() == [3, 1]
    with pytest.raises(RuntimeError, match=r"x should be \[rows, cols\]"):
        op(torch.ones(3), 1.0)


@pytest.fixture
def asked(monkeypatch) -> list[dict]:
    """The dtypes that were tried at a call, by the names of the arguments."""
    found, arrived = [], slots.arrived
    monkeypatch.setattr(slots, "arrived", lambda op, v, dtypes: found.append(dtypes) or arrived(op, v, dtypes))
    return found


def test_a_void_function_fills_what_directives_make(namespace, asked):
    @wb.op(f"{namespace}::rmsnorm", returns=("y",), saves=("rstd",))  # which pasted code knows nothing of
    def rmsnorm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @rmsnorm.cases
    def _(t):
        yield t(4, 128), t(128)
        yield wb.case("odd", t(5, 123), t(123))

    wb.cpp(rmsnorm, "//! y = empty_like(x)\n//! epsilon = eps\n" + HEAD + """
void rms_norm(torch::Tensor x, torch::Tensor w, torch::Tensor y, float epsilon) {
  y.copy_(x * torch::rsqrt(x.pow(2).mean(-1, true) + epsilon) * w);
}
""")  # fmt: skip
    x, w = torch.randn(3, 8), torch.randn(8)
    assert rmsnorm.runs().tier == "full"
    torch.testing.assert_close(rmsnorm(x, w), rmsnorm.reference(x, w))
    assert not asked
    for _ in range(2):
        torch.testing.assert_close(rmsnorm(x.double(), w.double()), rmsnorm.reference(x.double(), w.double()))
    assert asked == [{"x": torch.float64, "w": torch.float64}]
    x.requires_grad_()
    [grad_x] = torch.autograd.grad(rmsnorm(x, w).square().sum(), x)
    torch.testing.assert_close(grad_x, torch.autograd.grad(rmsnorm.reference(x, w).square().sum(), x)[0])


def test_a_void_function_that_reads_no_strides_is_tried_as_it_runs(namespace):
    """The launcher makes its arguments contiguous, in the trial as ever after."""

    @wb.op(f"{namespace}::doubled")
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    @doubled.cases
    def _(t):
        yield t(4, 8)
        yield wb.case("transposed", t(8, 4).t())

    wb.cpp(doubled, "//! out = empty(x.shape)\n" + HEAD + """
void doubled(const at::Tensor& x, at::Tensor& out) {
  const float* from = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 2 * from[i];
}
""")  # fmt: skip
    x = torch.randn(5, 3).t()
    assert doubled.runs().number == 1 and torch.equal(doubled(x), x * 2)


@pytest.mark.slow
def test_a_backward_with_saved_tensors_and_several_results(namespace, asked):
    @wb.op(f"{namespace}::norm", returns=("y", "peak"), saves=("r",))
    def norm(x: Tensor, w: Tensor, n: int = 1) -> tuple[Tensor, Tensor]:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * w * n, x.amax().detach()

    @norm.cases
    def _(t):
        yield t(4, 32), t(32)
        yield wb.case("three", t(5, 7), t(7), 3)

    wb.cpp(norm, "//! r = empty(*x.shape[:-1], 1)\n" + HEAD + """
std::vector<at::Tensor> norm(const at::Tensor& x, const at::Tensor& w, int n) {
  auto r = at::rsqrt(x.pow(2).mean(-1, true));
  return {x * r * w * n, x.amax(), r};
}
std::tuple<at::Tensor, at::Tensor> backward(
    const std::optional<at::Tensor>& grad_y, const at::Tensor& x, const at::Tensor& w, int64_t n, at::Tensor r) {
  auto g = grad_y.has_value() ? *grad_y * n : at::zeros_like(x);
  auto gw = g * w;
  auto gx = gw * r - x * r.pow(3) * (gw * x).mean(-1, true);
  return {gx, (g * x * r).reshape({-1, w.size(0)}).sum(0)};
}
""")  # fmt: skip
    assert {slot for slot, _ in norm.slots} == {"forward", "backward"}
    x, w = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    y, peak = norm(x, w, 2)
    assert peak == x.max()
    g = torch.randn_like(y)
    wanted = torch.autograd.grad(norm.reference(x, w, 2)[0], (x, w), g)
    for got, want in zip(torch.autograd.grad(y, (x, w), g), wanted, strict=True):
        torch.testing.assert_close(got, want)
    assert not asked  # these are the dtypes of its cases
    x, w, g = (t.detach().double().requires_grad_(t is not g) for t in (x, w, g))
    wanted = torch.autograd.grad(norm.reference(x, w, 2)[0], (x, w), g)
    for _ in range(2):
        for got, want in zip(torch.autograd.grad(norm(x, w, 2)[0], (x, w), g), wanted, strict=True):
            torch.testing.assert_close(got, want)
    assert [sorted(dtypes) for dtypes in asked] == [["w", "x"], ["grad_peak", "grad_y", "peak", "r", "w", "x", "y"]]


WIDE = (
    HEAD
    + """
std::tuple<at::Tensor, std::vector<at::Tensor>> wide(
    at::TensorList xs, const std::vector<int>& sizes, at::OptionalIntArrayRef more, std::optional<double> k,
    const std::string& how, at::ScalarType dtype, bool twice, uint8_t small, const c10::List<std::optional<at::Tensor>>& maybe) {
  auto sum = at::zeros(at::IntArrayRef({sizes[0], sizes[1]}), dtype);
  for (const auto& x : xs) sum += x;
  if (more.has_value()) sum += static_cast<double>(more->size());
  if (k) sum *= *k;
  if (how == "neg") sum = -sum;
  if (twice) sum *= 2;
  sum += static_cast<int64_t>(small);
  for (const std::optional<at::Tensor> m : maybe) if (m.has_value()) sum += *m;
  return {sum, {xs[0], sum}};
}
"""
)


def test_every_kind_of_argument_arrives(namespace):
    @wb.op(f"{namespace}::wide")
    def wide(
        xs: list[Tensor], sizes: list[int], more: list[int] | None, k: float | None, how: str, dtype: torch.dtype,
        twice: bool, small: int, maybe: list[Tensor | None],
    ) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
        total = torch.zeros(sizes, dtype=dtype)
        total = total + sum(xs) + (len(more) if more is not None else 0)
        total = total * (1.0 if k is None else k) * (-1 if how == "neg" else 1) * (2 if twice else 1) + small
        total = total + sum(m for m in maybe if m is not None)
        return total, [xs[0].clone(), total.clone()]

    @wide.cases
    def _(t):
        yield [t(2, 3), t(2, 3)], [2, 3], None, None, "pos", torch.float32, False, 7, [None, t(2, 3)]
        yield wb.case("other", [t(2, 3)], [2, 3], [5, 6, 7], 2.5, "neg", torch.float32, True, 200, [t(2, 3), None])

    wb.cpp(wide, WIDE)
    x = torch.ones(2, 3)
    total, rest = wide([x], [2, 3], [1], 2.0, "neg", torch.float32, True, 3, [])
    assert total.unique().tolist() == [-5.0] and rest[0].data_ptr() != x.data_ptr() and torch.equal(rest[0], x)
    with pytest.raises(RuntimeError, match="small = 256 does not fit the parameter's type, an integer of 8 bits"):
        wide([x], [2, 3], None, None, "", torch.float32, False, 256, [])
    with pytest.raises(RuntimeError, match="sizes = 4294967296 does not fit"):
        wide([x], [2, 1 << 32], None, None, "", torch.float32, False, 1, [])


def test_a_crash_and_a_write_outside_are_refused(scale):
    with pytest.raises(TrialError, match="crash|SIGSEGV"):
        wb.cpp(scale, SCALE.replace("auto* q = out.mutable_data_ptr<scalar_t>();", "scalar_t* volatile q = nullptr;"))
    assert torch.equal(scale(torch.ones(2)), torch.full((2,), 3.0))


TWICE = """
at::Tensor twice(const at::Tensor& x, at::TensorList xs, const std::optional<at::Tensor>& w) {
  at::Tensor out = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (x.scalar_type() == at::kDouble) static_cast<double*>(out.data_ptr())[i] = 2 * static_cast<double*>(x.data_ptr())[i];
    else static_cast<float*>(out.data_ptr())[i] = 2 * static_cast<float*>(x.data_ptr())[i];
  }
  return out;
}
"""  # a dtype that it does not know is read as float: twice as far as a half goes


def test_dtypes_that_arrive_later_are_tried_first(namespace, asked):
    @wb.op(f"{namespace}::twice")
    def twice(x: Tensor, xs: list[Tensor], w: Tensor | None = None) -> Tensor:
        return x * 2

    @twice.cases
    def _(t):
        yield t(5, 123), [], None
        yield t(4), [t(2, dtype=torch.int32, low=0), t(2)], t(3, dtype=torch.int64, low=0)

    wb.cpp(twice, TWICE)
    x, i, w = torch.randn(3, 4), torch.ones(2, dtype=torch.int32), torch.ones(3, dtype=torch.int64)
    assert twice(x, []).equal(2 * x) and twice(x, [i, x], w).equal(2 * x) and not asked  # as in its cases
    for _ in range(2):
        assert twice(x.double(), []).equal(2 * x.double())
    assert asked == [{"x": torch.float64, "xs": None, "w": None}]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="was tried for x float16 and goes out of bounds"):
            twice(x.half(), [])
    assert twice(x, []).equal(2 * x) and len(asked) == 3
    assert twice.runs().tier == "full"


def test_an_expanded_gradient_arrives_contiguous(namespace):
    @wb.op(f"{namespace}::third")
    def third(x: Tensor) -> Tensor:
        return x * 3

    @third.cases
    def _(t):
        yield t(5, 123)

    wb.cpp(
        f"{namespace}::third.backward",
        """
at::Tensor backward(const at::Tensor& grad_out, const at::Tensor& x) {
  auto made = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) made.data_ptr<float>()[i] = 3 * grad_out.data_ptr<float>()[i];
  return made;
}""",
    )
    x = torch.randn(64, 1024, requires_grad=True)
    (grad,) = torch.autograd.grad(third(x).sum(), x)  # the gradient of a sum has strides of 0
    assert grad.equal(torch.full((64, 1024), 3.0))
