"""Host cells in live ops: every kind of signature, built, tried, installed and called."""

from __future__ import annotations

import re
import threading

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import close, gone, gradients
from workbench import cells
from workbench.build import native
from workbench.errors import BuildError, SchemaError, TrialError
from workbench.trial import allocator

X = torch.linspace(-2, 3, 24).reshape(4, 6)
W = torch.linspace(1, 2, 6)

AXPY = """\
// Times k, plus y
Tensor axpy(const Tensor& x, const Tensor& y, float k) {
  Tensor out = torch::stable::empty_like(x);
  const float *a = x.const_data_ptr<float>(), *b = y.const_data_ptr<float>();
  float* o = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * k + b[i];
  return out;
}
"""
AXPY_BACKWARD = """\
std::tuple<Tensor, Tensor> backward(const Tensor& grad_out, const Tensor& x, float k) {
  Tensor gx = torch::stable::empty_like(x), gy = torch::stable::clone(grad_out);
  for (int64_t i = 0; i < x.numel(); ++i) gx.mutable_data_ptr<float>()[i] = grad_out.const_data_ptr<float>()[i] * k;
  return {gx, gy};
}
"""


@pytest.fixture(autouse=True, scope="module")
def guarded():
    assert allocator.wait()


@pytest.fixture
def lines():
    told = []
    cells.listeners.append(told.append)
    yield told
    cells.listeners.remove(told.append)


@pytest.fixture
def axpy():
    gone("hosted::axpy")

    @wb.op("hosted::axpy")
    def axpy(x: Tensor, y: Tensor, k: float = 2.0) -> Tensor:
        return x * k + y

    @axpy.cases
    def _(t):
        yield t(4, 8), t(4, 8)
        yield wb.case("odd", t(5, 123), t(5, 123), 0.5)

    return axpy


def refused(op, text: str, error=SchemaError, **options):
    with pytest.raises(error) as caught:
        wb.cpp(op, text, **options)
    return caught.value


# ---------------------------------------------------------------- functions that return


def test_a_function_that_returns_a_tensor(axpy, lines):
    wb.cpp(axpy, AXPY)
    assert torch.allclose(axpy(X, X, 3.0), X * 4)
    version = axpy.versions[1]
    assert version.how == "C++ on Tensor" or version.tier == "host"
    assert [(o.case, o.status) for o in version.trial.outcomes] == [("4x8", "agree"), ("odd", "agree")]
    assert str(lines[0]).startswith("axpy cpp host v1 | ")


def test_a_float_parameter_gets_the_value_and_not_its_bits(axpy):
    wb.cpp(axpy, AXPY)
    assert axpy(torch.ones(3), torch.zeros(3), 0.1).tolist() == [pytest.approx(0.1)] * 3
    with pytest.raises(RuntimeError, match=r"^hosted::axpy: k = 1e\+300 does not fit the parameter `float k`"):
        axpy(X, X, 1e300)
    assert torch.isinf(axpy(torch.ones(1), torch.zeros(1), float("inf"))).all()


def test_kernels_are_swapped_under_every_caller(axpy):
    wb.cpp(axpy, AXPY)
    held, zero = torch.ops.hosted.axpy.default, torch.zeros(2)
    compiled = torch.compile(lambda x: axpy(x, x, 3.0) + 1, fullgraph=True, backend="aot_eager")
    callers = [lambda: axpy(zero, zero), lambda: held(zero, zero), lambda: compiled(zero) - 1]
    assert [f().tolist() for f in callers] == [[0.0, 0.0]] * 3
    for added in (2e-6, 1e-6):
        wb.cpp(axpy, AXPY.replace("+ b[i]", f"+ b[i] + {added}f"))
        assert [f().tolist() == pytest.approx([added] * 2, rel=0.2) for f in callers] == [True] * 3
    axpy.restore(1)
    assert [f().tolist() for f in callers] == [[0.0, 0.0]] * 3
    axpy.restore(0)
    assert "reference" in repr(axpy) and [f().tolist() for f in callers] == [[0.0, 0.0]] * 3


def test_the_same_cell_twenty_times(axpy):
    for _ in range(20):
        wb.cpp(axpy, AXPY)
    assert len(axpy.versions) == 21 and axpy.versions[20].kernel.cached
    assert torch.equal(axpy(X, X), X * 3)
    axpy.restore(0)
    assert torch.equal(axpy(X, X), X * 3)


def test_every_dtype_has_the_one_build(axpy):
    text = AXPY.replace(
        "Tensor out", 'STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "only float32");\n  Tensor out'
    )
    wb.cpp(axpy, text)
    with pytest.raises(RuntimeError, match="only float32"):
        axpy(X.double(), X.double())


OUTPUTS = """\
std::tuple<Tensor, float, int, bool, std::vector<Tensor>> outputs(const Tensor& x, int64_t n) {
  Tensor q = torch::stable::new_empty(x, x.sizes(), ScalarType::Long);
  for (int64_t i = 0; i < x.numel(); ++i) q.mutable_data_ptr<int64_t>()[i] = std::lround(x.const_data_ptr<float>()[i]);
  return {q, 0.5f, int(-n), n > 2, {torch::stable::clone(x), torch::stable::clone(q)}};
}
"""


def test_results_of_every_kind():
    gone("hosted::outputs")

    @wb.op("hosted::outputs")
    def outputs(x: Tensor, n: int) -> tuple[Tensor, float, int, bool, list[Tensor]]:
        return x.round().long(), 0.5, -n, n > 2, [x.clone(), x.round().long()]

    @outputs.cases
    def _(t):
        yield t(3, 5, low=-9, high=9), 3

    wb.cpp(outputs, OUTPUTS)
    q, half, n, large, both = outputs(X, 3)
    assert q.dtype == torch.int64 and torch.equal(q, X.round().long())
    assert (half, n, large) == (0.5, -3, True) and torch.equal(both[0], X) and torch.equal(both[1], q)


ARGUMENTS = """\
Tensor arguments(const Tensor& x, std::optional<Tensor> w, const std::vector<Tensor>& list, std::vector<int64_t> ints,
                 std::vector<float> floats, const std::string& mode, ScalarType dtype, std::optional<ScalarType> other,
                 Device device, bool flag, std::optional<int> count, uint8_t small, double scale) {
  STD_TORCH_CHECK(device.type() == torch::headeronly::DeviceType::CPU, "device");
  STD_TORCH_CHECK(dtype == ScalarType::Float && (!other || *other == ScalarType::BFloat16), "dtypes");
  double sum = w ? w->const_data_ptr<float>()[0] : 100;
  for (const Tensor& t : list) sum += t.const_data_ptr<float>()[0];
  for (int64_t i : ints) sum += i;
  for (float f : floats) sum += f;
  sum += (mode == "double" ? 1000 : 0) + (flag ? 2000 : 0) + (count ? *count : 3000) + small;
  Tensor out = torch::stable::new_empty(x, {1});
  out.mutable_data_ptr<float>()[0] = sum * scale;
  return out;
}
"""


def test_arguments_of_every_kind():
    gone("hosted::arguments")

    @wb.op("hosted::arguments")
    def arguments(
        x: Tensor, w: Tensor | None, list: list[Tensor], ints: list[int], floats: list[float], mode: str,
        dtype: torch.dtype, other: torch.dtype | None, device: torch.device, flag: bool, count: int | None, small: int,
        *, scale: float = 1.0,
    ) -> Tensor:  # fmt: skip
        total = (w[0] if w is not None else 100) + sum(t[0] for t in list) + sum(ints) + sum(floats) + small
        total = total + (1000 if mode == "double" else 0) + (2000 if flag else 0) + (3000 if count is None else count)
        return (total * scale).reshape(1).to(x.dtype)

    @arguments.cases
    def _(t):
        rest = [1, 2], [0.5], "double", torch.float32, None, torch.device("cpu"), True, None, 7
        yield t(2), t(3), [t(1), t(2)], *rest
        yield wb.case(
            "none",
            t(2),
            None,
            [t(4)],
            [],
            [],
            "",
            torch.float32,
            torch.bfloat16,
            torch.device("cpu"),
            False,
            5,
            0,
            scale=2.0,
        )

    wb.cpp(arguments, ARGUMENTS)
    one = torch.ones(1)
    given = [one, None, [one], [3], [0.25], "double", torch.float32, None, torch.device("cpu"), True, 4, 200]
    assert arguments(*given, scale=0.5).item() == (100 + 1 + 3 + 0.25 + 1000 + 2000 + 4 + 200) / 2
    with pytest.raises(RuntimeError, match="hosted::arguments: small = 256 does not fit the parameter `uint8_t small`"):
        arguments(*given[:-1], 256)
    with pytest.raises(
        RuntimeError,
        match="hosted::arguments: count = 4294967296 does not fit the parameter `std::optional<int> count`",
    ):
        arguments(*given[:-2], 2**32, 1)
    with pytest.raises(RuntimeError, match=r"hosted::arguments: floats = 1e\+39 does not fit"):
        arguments(*given[:4], [1.0, 1e39], *given[5:])


# ---------------------------------------------------------------- void functions


STEP = """\
void step_(std::vector<Tensor> p, const std::vector<Tensor>& g, Tensor& count, float lr) {
  for (size_t i = 0; i < p.size(); ++i)
    for (int64_t j = 0; j < p[i].numel(); ++j)
      p[i].mutable_data_ptr<float>()[j] -= lr * g[i].const_data_ptr<float>()[j];
  count.mutable_data_ptr<int64_t>()[0] += 1;
}
"""


def test_a_function_that_mutates_lists_and_tensors():
    gone("hosted::step_")

    @wb.op("hosted::step_", mutates=("p", "count"))
    def step_(p: list[Tensor], g: list[Tensor], count: Tensor, lr: float) -> None:
        for a, b in zip(p, g, strict=True):
            a.sub_(b, alpha=lr)
        count.add_(1)

    @step_.cases
    def _(t):
        yield [t(3, 5), t(0), t(7)], [t(3, 5), t(0), t(7)], torch.zeros(1, dtype=torch.int64), 0.5

    wb.cpp(step_, STEP)
    p, count = [X.clone(), W.clone()], torch.zeros(1, dtype=torch.int64)
    version = p[0]._version
    step_(p, [X, W], count, 0.25)
    assert torch.equal(p[0], X * 0.75) and torch.equal(p[1], W * 0.75) and count.item() == 1 and p[0]._version > version
    error = refused(
        step_,
        STEP.replace("p[i].mutable_data_ptr<float>()[j] -=", "const_cast<float*>(g[i].const_data_ptr<float>())[j] +="),
        TrialError,
    )
    assert error.kind == "mutation" and "writes to the argument g[0]" in str(error)


HALF = """\
//! y = empty_like(x)
void half(Tensor x, Tensor& y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] / 2;
}
"""
HALF_SAVING = (
    HALF.replace("//! y", "//! r = empty_like(x)\n//! y")
    .replace("Tensor& y", "Tensor& y, Tensor& r")
    .replace("/ 2;", "/ 2, r.mutable_data_ptr<float>()[i] = 0.5f;")
)
HALF_BACKWARD = """\
//! n = x.numel()
//! grad_x = empty_like(x)
void backward(const float* grad_y, const float* r, float* grad_x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_y[i] * r[i];
}
"""


def test_a_void_function_that_saves_nothing_leaves_the_gradient_to_the_reference(namespace):
    @wb.op(f"{namespace}::half", returns="y", saves="r")
    def half(x: Tensor) -> Tensor:
        return x / 2

    half.cases(lambda t: [t(4, 8), t(5, 3)])
    wb.cpp(half, HALF)
    assert half.last_line.notes == ("r is not saved here: the gradient comes from the reference",)
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda x: half(x).tanh(), fullgraph=True, backend="aot_eager")
    for run in (half, compiled):
        assert torch.autograd.grad(run(x).sum(), x)[0].max() <= 0.5
    words = "half.backward takes what its forward does not save: write '//! r = empty(sizes, dtype=...)' into the"
    with pytest.raises(SchemaError, match=re.escape(words)):
        wb.cpp(f"{namespace}::half.backward", HALF_BACKWARD)
    wb.cpp(half, HALF_SAVING)
    wb.cpp(f"{namespace}::half.backward", HALF_BACKWARD)
    with pytest.raises(SchemaError, match=re.escape(words)):
        wb.cpp(half, HALF)
    assert (half.runs().number, half.runs("backward").number) == (2, 3)
    assert torch.autograd.grad(half(x).sum(), x)[0].tolist() == [0.5] * 3


RMS = """\
//! y = empty_like(x)
//! epsilon = eps
//! cols = x.shape[-1]
//! require w is None or w.shape == (cols,)
// One row after the other
void rms_norm(Tensor x, const std::optional<Tensor>& w, Tensor& y, float epsilon, int cols) {
  const float* a = x.const_data_ptr<float>();
  float* o = y.mutable_data_ptr<float>();
  for (int64_t r = 0; r < x.numel() / cols; ++r, a += cols, o += cols) {
    float s = 0;
    for (int c = 0; c < cols; ++c) s += a[c] * a[c];
    for (int c = 0; c < cols; ++c) o[c] = a[c] / std::sqrt(s / cols + epsilon) * (w ? w->const_data_ptr<float>()[c] : 1);
  }
}
"""


@pytest.fixture
def rms():
    gone("hosted::rms")

    @wb.op("hosted::rms", returns="y")
    def rms(x: Tensor, w: Tensor | None = None, eps: float = 1e-6) -> Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return y if w is None else y * w

    @rms.cases
    def _(t):
        yield t(4, 6), t(6)
        yield wb.case("plain", t(3, 5), None, 1e-3)

    return rms


def test_a_void_function_fills_what_its_directives_made(rms):
    wb.cpp(rms, RMS)
    assert close(rms(X, W), rms.reference(X, W)) and close(rms(X), rms.reference(X))
    with pytest.raises(RuntimeError, match=r"require w is None or w.shape == \(cols,\) is not met"):
        rms(X, W[:3])
    with pytest.raises(RuntimeError, match=r"hosted::rms: eps = 1e\+300 does not fit the parameter `float epsilon`"):
        rms(X, W, 1e300)
    wb.cpp(rms, RMS.replace("std::optional<Tensor>&", "Tensor&").replace("w ? w->", "true ? w."), cases="4x6")
    with pytest.raises(
        RuntimeError,
        match="hosted::rms: w is None, which the parameter `const Tensor& w` cannot be: make it a std::optional",
    ):
        rms(X)


def test_none_for_a_number_is_refused_and_not_zero():
    gone("hosted::maybe")

    @wb.op("hosted::maybe")
    def maybe(x: Tensor, k: float | None = None) -> Tensor:
        return x * (1.0 if k is None else k)

    @maybe.cases
    def _(t):
        yield t(3), 2.0

    body = "{ for (int64_t i = 0; i < x.numel(); ++i) out.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] * k; }"
    wb.cpp(maybe, f"//! out = empty_like(x)\nvoid maybe(const Tensor& x, Tensor out, float k) {body}")
    with pytest.raises(RuntimeError, match="k is None, and maybe takes it as `float k`"):
        maybe(X)
    wb.cpp(
        maybe,
        AXPY.replace("axpy", "maybe")
        .replace("const Tensor& y, ", "")
        .replace("*b = y.const_data_ptr<float>()", "*b = a")
        .replace("+ b[i]", ""),
    )
    with pytest.raises(RuntimeError, match="hosted::maybe: k is None, which the parameter `float k` cannot be"):
        maybe(X)


# ---------------------------------------------------------------- backward


def test_a_backward_in_the_forwards_cell(axpy, lines):
    wb.cpp(axpy, AXPY + AXPY_BACKWARD)
    assert [str(line).split(" cpp ")[0] for line in lines] == ["axpy", "axpy.backward"]
    assert axpy.runs("backward", "cpu").number == 2
    got, wanted = (
        gradients(lambda x, y: axpy(x, y, 3.0), X, X + 1),
        gradients(lambda x, y: axpy.reference(x, y, 3.0), X, X + 1),
    )
    assert close(got[0], wanted[0]) and close(got[1], wanted[1])


def test_a_backward_in_a_cell_of_its_own(axpy):
    wb.cpp(
        "axpy.backward", AXPY_BACKWARD.replace("* k;", "* k + 1e-6f;")
    )  # close enough to agree, and to be told apart
    x, y = X.clone().requires_grad_(), X.clone()
    gx = torch.autograd.grad(axpy(x, y).sum(), x)[0]
    assert (gx - 2).min() > 5e-7  # the kernel's, and not the reference's
    compiled = torch.compile(lambda x, y: axpy(x, y).sum(), fullgraph=True, backend="aot_eager")
    assert torch.equal(torch.autograd.grad(compiled(x, y), x)[0], gx)


SAVING = """\
//! rows = prod(x.shape[:-1])
//! rstd = empty(rows, dtype=float32)
std::tuple<Tensor, Tensor> norm(const Tensor& x, float eps) {
  int64_t cols = x.size(-1), rows = x.numel() / cols;
  Tensor y = torch::stable::empty_like(x), rstd = torch::stable::new_empty(x, {rows});
  const float* a = x.const_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r, a += cols) {
    float s = 0;
    for (int64_t c = 0; c < cols; ++c) s += a[c] * a[c];
    float i = 1 / std::sqrt(s / cols + eps);
    rstd.mutable_data_ptr<float>()[r] = i;
    for (int64_t c = 0; c < cols; ++c) y.mutable_data_ptr<float>()[r * cols + c] = a[c] * i;
  }
  return {y, rstd};
}
"""
SAVED = """\
Tensor backward(const Tensor& grad_y, const Tensor& x, const Tensor& rstd) {
  int64_t cols = x.size(-1), rows = x.numel() / cols;
  Tensor gx = torch::stable::empty_like(x);
  for (int64_t r = 0; r < rows; ++r) {
    const float *a = x.const_data_ptr<float>() + r * cols, *g = grad_y.const_data_ptr<float>() + r * cols;
    float d = 0, i = rstd.const_data_ptr<float>()[r];
    for (int64_t c = 0; c < cols; ++c) d += a[c] * g[c];
    for (int64_t c = 0; c < cols; ++c) gx.mutable_data_ptr<float>()[r * cols + c] = g[c] * i - d * i * i * i / cols * a[c];
  }
  return gx;
}
"""
RAW_BACKWARD = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! grad_x = empty(x.shape)
void backward(const float* grad_y, const float* x, const float* rstd, float* grad_x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float d = 0, i = rstd[r];
    for (int64_t c = 0; c < cols; ++c) d += x[r * cols + c] * grad_y[r * cols + c];
    for (int64_t c = 0; c < cols; ++c) grad_x[r * cols + c] = grad_y[r * cols + c] * i - d * i * i * i / cols * x[r * cols + c];
  }
}
"""


@pytest.mark.parametrize("backward", [SAVED, RAW_BACKWARD])
def test_what_a_forward_saves_reaches_backward(backward):
    gone("hosted::norm")

    @wb.op("hosted::norm", returns="y", saves="rstd")
    def norm(x: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    @norm.cases
    def _(t):
        yield t(4, 8)
        yield t(2, 3, 5)

    if backward is SAVED:
        wb.cpp(norm, SAVING + SAVED)
    else:
        wb.cpp(norm, SAVING)
        wb.cpp("hosted::norm.backward", RAW_BACKWARD)
    assert norm.runs("backward", "cpu").number == 2
    wanted = gradients(norm.reference, X)[0]
    assert close(gradients(norm, X)[0], wanted)
    assert close(gradients(torch.compile(norm, fullgraph=True, backend="aot_eager"), X)[0], wanted)
    error = refused("hosted::norm", SAVING.replace("//! rstd = empty(rows, dtype=float32)\n", ""))
    assert (
        error.message
        == "norm returns rstd for backward; say what it is, for the fake: '//! rstd = empty(sizes, dtype=...)'"
    )


PARTIAL = """\
std::tuple<Tensor, std::optional<Tensor>> backward(const Tensor& grad_out, const Tensor& x, float k) {
  Tensor gx = torch::stable::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) gx.mutable_data_ptr<float>()[i] = grad_out.const_data_ptr<float>()[i] * k;
  return {gx, std::nullopt};
}
"""


def test_a_gradient_that_is_left_out_comes_from_the_reference(axpy, lines):
    wb.cpp("axpy.backward", PARTIAL)
    assert any("the gradient of y comes from the reference" in note for note in lines[-1].notes)
    got, wanted = gradients(axpy, X, X + 1), gradients(axpy.reference, X, X + 1)
    assert close(got[0], wanted[0]) and close(got[1], wanted[1])
    wb.cpp("axpy.backward", AXPY_BACKWARD)  # none is left out any more
    assert close(gradients(axpy, X, X + 1)[1], wanted[1]) and axpy.runs("backward", "cpu").kernel.left_out == ()
    error = refused(
        "axpy.backward",
        PARTIAL.replace("std::optional<Tensor>>", "Tensor>").replace("std::nullopt", "Tensor()"),
        TrialError,
    )
    assert "hosted::axpy: grad_y is undefined: return std::optional<Tensor>" in str(error)


def test_a_void_backward_makes_its_gradients_by_directives(axpy):
    text = (
        "//! grad_x = empty_like(x)\n"
        "void backward(const Tensor& grad_out, Tensor& grad_x, double k) {\n"
        "  for (int64_t i = 0; i < grad_x.numel(); ++i)\n"
        "    grad_x.mutable_data_ptr<float>()[i] = grad_out.const_data_ptr<float>()[i] * k;\n}\n"
    )
    wb.cpp("axpy.backward", text)
    assert axpy.runs("backward", "cpu").kernel.left_out == ("y",)
    got, wanted = gradients(axpy, X, X + 1), gradients(axpy.reference, X, X + 1)
    assert close(got[0], wanted[0]) and close(got[1], wanted[1])


# ---------------------------------------------------------------- strides


def test_outputs_get_the_strides_of_the_reference(axpy):
    """`new_empty` is contiguous; for a transposed x the reference's result is not, and compiled code relies on it."""
    text = AXPY.replace("torch::stable::empty_like(x)", "torch::stable::new_empty(x, x.sizes())").replace(
        "const float *a = x.const", "Tensor xc = torch::stable::contiguous(x), yc = torch::stable::contiguous(y);\n  const float *a = xc.const"
    ).replace("*b = y.const", "*b = yc.const")  # fmt: skip
    wb.cpp(axpy, text)
    x = torch.randn(6, 4).t()
    assert axpy(x, X).stride() == axpy.reference(x, X).stride() == (1, 4) and close(axpy(x, X), axpy.reference(x, X))
    compiled = torch.compile(lambda x, y: axpy(x, y) * 2, fullgraph=True)
    assert close(compiled(x, X), axpy.reference(x, X) * 2)


ROWS = """\
Tensor rows(const Tensor& x) {
  Tensor out = torch::stable::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i)
    out.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] - x.const_data_ptr<float>()[i % x.size(1)];
  return out;
}
"""


@pytest.fixture
def rows():
    gone("hosted::rows")

    @wb.op("hosted::rows")
    def rows(x: Tensor) -> Tensor:
        return x - x[:1]

    @rows.cases
    def _(t):
        yield t(4, 6)
        yield wb.case("transposed", t(6, 4).t())

    return rows


def test_a_function_that_reads_no_strides_gets_contiguous_tensors(rows):
    wb.cpp(rows, ROWS)
    x = torch.randn(6, 4).t()
    assert close(rows(x), rows.reference(x)) and rows(x).stride() == (1, 4)
    error = refused(
        rows, ROWS.replace("Tensor out", "(void)x.stride(0);\n  Tensor out"), TrialError
    )  # it says that it sees to them
    assert error.kind == "mismatch" and "differs on transposed float32" in str(error)


def test_a_void_function_that_reads_no_strides_does_too(rows):
    text = "//! out = empty_like(x)\n" + ROWS.replace(
        "Tensor rows(const Tensor& x)", "void rows(const Tensor& x, Tensor& out)"
    )
    wb.cpp(rows, text.replace("  Tensor out = torch::stable::empty_like(x);\n", "").replace("  return out;\n", ""))
    x = torch.randn(6, 4).t()
    assert close(rows(x), rows.reference(x)) and rows(x).stride() == (1, 4)


def test_what_is_written_in_place_is_never_copied():
    gone("hosted::zero_")

    @wb.op("hosted::zero_", mutates="x")
    def zero_(x: Tensor) -> None:
        x.zero_()

    @zero_.cases
    def _(t):
        yield (t(3, 4),)

    wb.cpp(
        zero_, "void zero_(Tensor& x) { for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data_ptr<float>()[i] = 0; }"
    )
    x = torch.ones(4, 6)
    zero_(x)
    assert not x.any()
    with pytest.raises(
        RuntimeError, match="hosted::zero_: x is written in place and not contiguous, and the function reads no strides"
    ):
        zero_(torch.ones(4, 6)[:, :3])


def test_incoming_gradients_are_contiguous(axpy):
    """That of `sum()` is one number, expanded: code that reads on from there would leave its memory."""
    wb.cpp("axpy.backward", AXPY_BACKWARD)
    x = X.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(axpy(x, X, 3.0).sum(), x)[0], torch.full_like(X, 3))
    wb.cpp(
        "axpy.backward", "// reads no stride(\n" + AXPY_BACKWARD.replace("Tensor gx", "(void)x.stride(0);\n  Tensor gx")
    )
    assert torch.equal(torch.autograd.grad(axpy(x, X, 3.0).sum(), x)[0], torch.full_like(X, 3))


# ---------------------------------------------------------------- what goes wrong


def test_exceptions_of_the_users_code(axpy):
    for thrown, said in (
        ('throw std::invalid_argument("no such thing")', "no such thing"),
        ('STD_TORCH_CHECK(false, "x has ", x.dim(), " dimensions")', "x has 2 dimensions"),
        ("x.size(7)", "Dimension out of range"),
        ("torch::stable::new_empty(x, {-3})", "negative dimension"),
    ):
        error = refused(axpy, AXPY.replace("float* o =", f"if (k != 7) {thrown};\n  float* o ="), TrialError)
        assert "it raises on 4x8 float32" in str(error) and said in str(error)
    wb.cpp(axpy, AXPY.replace("float* o =", 'if (k == 7) throw std::runtime_error("seven");\n  float* o ='))
    with pytest.raises(RuntimeError, match="^seven"):
        axpy(X, X, 7.0)


@pytest.mark.slow
def test_touching_what_it_may_not(axpy):
    for change, kind, said in (
        (
            ("return out", "o[x.numel()] = 1; return out"),
            "overrun",
            "past the end of out (shape (4, 8), float32): flat element 32 of 32",
        ),
        (("a[i] * k + b[i]", "a[i] * k + b[i + 40000]"), "overrun", "reads past the end of y (shape (4, 8), float32)"),
        (("o[i] = ", "const_cast<float*>(a)[i] = o[i] = "), "mutation", "writes to the argument x[0, 0]"),
        (("return out", "return x"), "mismatch", "out shares memory with x; an output must be a tensor of its own"),
    ):
        error = refused(axpy, AXPY.replace(*change), TrialError)
        assert error.kind == kind and said in str(error)
    error = refused(axpy, AXPY.replace("int64_t i = 0", "int64_t i = 5"), TrialError)
    assert error.kind == "mismatch" and "5 of 32 elements never written" in str(error)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("Tensor axpy(const Tensor& x, at_ k) { return x; }", "the parameter 'at_ k' cannot take k, which is a float", 1),
        (AXPY.replace("float k", "int k"), "the parameter 'int k' cannot take k, which is a float in the schema: write it as 'double k'", 2),
        ("\nTensor one(Tensor x) { return x; }\nTensor two(Tensor x) { return x; }\n",
         "which function is axpy? The cell has one, two; say --entry NAME", 3),
        (AXPY + AXPY, "which function is axpy? The cell has axpy, axpy; keep one, or give the other another name", 10),
        ("//! out = empty_like(x)\n" + AXPY, "axpy returns its results, so no directive makes out; return void, or leave it out", 1),
        ("//! require x.dim() == 2\n" + AXPY, "a function on Tensor checks with STD_TORCH_CHECK; 'require' and 'tune' are for raw cells", 1),
    ],
)  # fmt: skip
def test_signatures_that_do_not_fit(axpy, text, message, line):
    error = refused(axpy, text)
    assert error.message.startswith(message) and error.line == line
    assert "axpy forward still runs the reference" in str(error)


def test_scalar_is_refused_with_the_cure():
    gone("hosted::numbers")
    numbers = wb.op("hosted::numbers(Tensor x, Scalar k) -> Tensor")
    error = refused(numbers, "Tensor numbers(Tensor x, double k) { return x; }")
    assert error.message == "k is a Scalar, which host cells cannot take: write float"


def test_entry_names_the_function(axpy):
    wb.cpp(
        axpy,
        "namespace theirs {\n"
        + AXPY.replace("Tensor axpy", "Tensor fused")
        + "Tensor other(Tensor x) { return x; }\n}",
        entry="fused",
    )
    assert close(axpy(X, X), X * 3)


def test_compiler_errors_are_on_the_cells_lines(axpy):
    wb.cpp(axpy, AXPY)
    error = refused(axpy, AXPY.replace("float* o =", "undefined_thing;\n  float* o ="), BuildError)
    first = error.diagnostics[0]
    assert (first.file, first.line) == ("cell", 5) and "undefined_thing" in first.message
    error = refused(axpy, '#include "no_such_header.h"\n' + AXPY, BuildError)
    assert error.diagnostics[0].line == 1 and "no_such_header.h" in str(error)
    error = refused(axpy, AXPY.replace("return out;\n}", "return out;"), BuildError)
    assert error.diagnostics[0].file == "cell"
    error = refused(
        axpy, "void missing_function();\n" + AXPY.replace("float* o =", "missing_function();\n  float* o ="), BuildError
    )
    assert "missing_function" in str(error)
    assert axpy.runs("forward", "cpu").number == 1 and close(axpy(X, X), X * 3)


# ---------------------------------------------------------------- what host code may use


FAST = """\
//! flags -O3 -march=native -fopenmp
#include <immintrin.h>
#include <omp.h>
Tensor axpy(const Tensor& x, const Tensor& y, float k) {
  Tensor out = torch::stable::empty_like(x);
  const float *a = x.const_data_ptr<float>(), *b = y.const_data_ptr<float>();
  float* o = out.mutable_data_ptr<float>();
  const int64_t n = x.numel(), most = n - n % 4;
  #pragma omp parallel for
  for (int64_t i = 0; i < most; i += 4) {
#ifdef __SSE__
    _mm_storeu_ps(o + i, _mm_add_ps(_mm_mul_ps(_mm_loadu_ps(a + i), _mm_set1_ps(k)), _mm_loadu_ps(b + i)));
#endif
  }
  torch::stable::parallel_for(most, n, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) o[i] = a[i] * k + b[i];
  });
  return out;
}
"""


@pytest.mark.skipif(
    "sys.platform != 'linux' or __import__('platform').machine() != 'x86_64'", reason="intrinsics of x86-64"
)
def test_intrinsics_openmp_and_torchs_threads(axpy):
    wb.cpp(axpy, FAST)
    x, y = torch.randn(1003), torch.randn(1003)
    assert close(axpy(x, y, 3.0), x * 3 + y)


def test_an_op_that_is_born_from_the_signature():
    gone("hosted::born")
    wb.cpp("hosted::born", AXPY.replace("axpy", "born").replace("float k", "float k = 0.5f"))
    born = wb.ops["hosted::born"]
    assert str(born.schema) == "hosted::born(Tensor x, Tensor y, float k=0.5) -> Tensor"
    assert close(born(X, X), X * 1.5)
    gone("hosted::filled")
    wb.cpp("hosted::filled", "//! out = empty_like(x)\nvoid filled(const Tensor& x, Tensor& out, double value) {\n"
           "  for (int64_t i = 0; i < x.numel(); ++i) out.mutable_data_ptr<float>()[i] = value;\n}\n")  # fmt: skip
    filled = wb.ops["hosted::filled"]
    assert str(filled.schema) == "hosted::filled(Tensor x, float value) -> Tensor"
    assert filled(X, 2.5).tolist() == torch.full_like(X, 2.5).tolist()


def test_blocks_in_headers_that_would_register_for_ever_are_left_out(axpy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.h").write_text(
        'STABLE_TORCH_LIBRARY(hosted_theirs, m) { m.def("half(Tensor x) -> Tensor"); }\n'
        'STABLE_TORCH_LIBRARY_IMPL(hosted_theirs, CPU, m) { m.impl("half", nullptr); }\n'
    )
    wb.cpp(axpy, '#include "theirs.h"\n' + AXPY)
    wb.cpp(axpy, '#include "theirs.h"\n' + AXPY.replace("+ b[i]", "+ 1 * b[i]"))
    assert close(axpy(X, X), X * 3) and not hasattr(torch.ops.hosted_theirs, "half")


def test_lists_and_none_among_what_backward_is_for():
    gone("hosted::total")

    @wb.op("hosted::total")
    def total(xs: list[Tensor], w: Tensor | None = None) -> Tensor:
        return sum(x.sum() for x in xs) * (1.0 if w is None else w.sum())

    @total.cases
    def _(t):
        yield [t(2, 3), t(4)], None
        yield [t(5)], t(2)

    wb.cpp(
        "hosted::total.backward",
        """
std::tuple<std::vector<Tensor>, std::optional<Tensor>> backward(const Tensor& grad_out, const std::vector<Tensor>& xs, std::optional<Tensor> w) {
  std::vector<Tensor> made;
  float factor = grad_out.const_data_ptr<float>()[0], sum = w ? 0 : 1;
  for (int64_t i = 0; w && i < w->numel(); ++i) sum += w->const_data_ptr<float>()[i];
  for (const Tensor& x : xs) made.push_back(torch::stable::fill_(torch::stable::empty_like(x), factor * sum));
  return {made, std::nullopt};
}
""",
    )
    for w in (None, W):
        xs = [X.clone().requires_grad_(), W.clone().requires_grad_()]
        wanted = torch.autograd.grad(total.reference(xs, w), xs)
        assert all(close(a, b) for a, b in zip(torch.autograd.grad(total(xs, w), xs), wanted, strict=True))
    ws = W.clone().requires_grad_()
    assert close(torch.autograd.grad(total([X], ws), ws)[0], torch.autograd.grad(total.reference([X], ws), ws)[0])


def test_an_argument_may_have_a_name_that_cpp_keeps_for_itself(namespace):
    @wb.op(f"{namespace}::f")
    def f(x: Tensor, mutable: float = 2.0, xor: float = 1.0) -> Tensor:
        return x * mutable + xor

    wb.cpp(f, """\
//! k = mutable
//! b = xor
Tensor f(const Tensor& x, double k, double b) {
  Tensor out = torch::stable::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) out.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] * k + b;
  return out;
}
""")  # fmt: skip
    assert close(f(X, 3.0, 0.5), X * 3 + 0.5)


def test_what_is_said_of_a_new_dtype_is_said_in_its_own_thread(axpy):
    """Two threads may ask at once; what one was told is not the other's to write over, or to read half written."""
    wb.cpp(axpy, AXPY)
    library = axpy.runs().kernel._loaded._library

    def missed(codes: object, count: int) -> int:
        library.wb_set_message(b"no form for these")
        other = threading.Thread(target=library.wb_set_message, args=(b"another thread's",))
        other.start()
        other.join()
        return 1

    kept = native._MISS(missed)
    library.wb_hook_miss(kept)
    with pytest.raises(RuntimeError, match="no form for these"):
        axpy(X.double(), X.double())


def test_dtypes_that_arrive_later_are_tried_first(namespace):
    @wb.op(f"{namespace}::twice")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.cases
    def _(t):
        yield t(5, 123)

    wb.cpp(
        twice,
        """
Tensor twice(const Tensor& x) {
  Tensor out = torch::stable::empty_like(x);
  if (x.scalar_type() == ScalarType::Double) {
    for (int64_t i = 0; i < x.numel(); ++i) ((double*)out.data_ptr())[i] = 2 * ((const double*)x.data_ptr())[i];
    return out;
  }
  for (int64_t i = 0; i < x.numel(); ++i) ((float*)out.data_ptr())[i] = 2 * ((const float*)x.data_ptr())[i];
  return out;
}""",
    )  # a dtype that it does not know is read as float: twice as far as a half goes
    x = torch.randn(3, 4)
    assert twice(x).equal(2 * x)
    assert twice(x.double()).equal(2 * x.double())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="was tried for x float16 and goes out of bounds"):
            twice(x.half())
    assert twice(x).equal(2 * x)


def test_dtypes_that_arrive_later_at_a_void_function_are_tried_first(namespace):
    @wb.op(f"{namespace}::twice")
    def twice(x: Tensor, w: Tensor | None = None) -> Tensor:
        return x * 2

    @twice.cases
    def _(t):
        yield t(5, 123), None

    wb.cpp(
        twice,
        """
//! out = empty_like(x)
void twice(const Tensor& x, Tensor& out) {
  if (x.scalar_type() == ScalarType::Double) {
    for (int64_t i = 0; i < x.numel(); ++i) ((double*)out.data_ptr())[i] = 2 * ((const double*)x.data_ptr())[i];
    return;
  }
  for (int64_t i = 0; i < x.numel(); ++i) ((float*)out.data_ptr())[i] = 2 * ((const float*)x.data_ptr())[i];
}""",
    )  # a dtype that it does not know is read as float: twice as far as a half goes
    x = torch.randn(3, 4)
    assert twice(x).equal(2 * x)
    for _ in range(2):
        assert twice(x.double()).equal(2 * x.double())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="was tried for x float16 and goes out of bounds"):
            twice(x.half())
    assert twice(x).equal(2 * x) and twice(x, torch.ones(2, dtype=torch.int32)).equal(2 * x)
    twice.restore(0)
    twice.restore(1)
    assert twice(x.double()).equal(2 * x.double())
