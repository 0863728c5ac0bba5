"""Compiled launchers and bodies, called through torch.ops: values, layouts, and every error that a call can meet."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest
import torch

from tests.build.native_tools import Cell, cell, load
from workbench.build import native
from workbench.errors import BuildError, SchemaError
from workbench.schema import spell_results

NS = "native_tests"
LIBRARY = torch.library.Library(NS, "FRAGMENT")
LAYOUT = torch.library.Library("wb_layout", "FRAGMENT")
f32, f64, bf16, f16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


def made(name: str, parameters: str, results: str, text: str, **names) -> Cell:
    """The op defined with torch, its launcher registered; nothing is installed yet."""
    one = cell(f"{NS}::{name}({parameters}) -> {results}", text, **names)
    types = (*one.schema.output_types, *("Tensor" for _ in one.schema.saves))
    LIBRARY.define(f"{name}({parameters}) -> {results}")
    LIBRARY.define(f"{name}_forward({parameters}) -> {spell_results(types, ('',) * len(types))}")
    load(one).launcher.register()
    return one


def op(name: str):
    return getattr(getattr(torch.ops, NS), name)


def rmsnorm(x, w, eps=1e-6):
    xf = x.float()
    return (xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


RMSNORM = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! y = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
template <typename T, typename W>
void rmsnorm(const T* __restrict__ x, const W* w, T* y, float* rstd, float eps, int rows, int cols) {
  for (int r = 0; r < rows; ++r, x += cols, y += cols) {
    float s = 0;
    for (int c = 0; c < cols; ++c) s += float(x[c]) * float(x[c]);
    rstd[r] = 1 / sqrtf(s / cols + eps);
    for (int c = 0; c < cols; ++c) y[c] = T(float(T(float(x[c]) * rstd[r])) * float(w[c]));
  }
}
"""
BACKWARD = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! grad_x = empty(x.shape)
//! grad_w = zeros_like(w)
void backward(const float* grad_y, const float* x, const float* w, const float* rstd, float* grad_x, float* grad_w,
              int rows, int cols) {
  for (int r = 0; r < rows; ++r, x += cols, grad_x += cols) {
    float d = 0, i = rstd[r];
    for (int c = 0; c < cols; ++c) d += (grad_y ? grad_y[r * cols + c] : 0) * w[c] * x[c];
    for (int c = 0; c < cols; ++c) {
      float g = grad_y ? grad_y[r * cols + c] : 0;
      grad_x[c] = g * w[c] * i - d * i * i * i / cols * x[c];
      grad_w[c] += g * x[c] * i;
    }
  }
}
"""


@pytest.fixture(scope="module")
def norm() -> Cell:
    one = made("rmsnorm", "Tensor x, Tensor w, float eps=1e-6", "Tensor", RMSNORM, returns="y", saves="rstd")
    LAYOUT.define(f"{NS}__rmsnorm(Tensor x, Tensor w, float eps=1e-6) -> Tensor")
    LAYOUT.impl(f"{NS}__rmsnorm", lambda x, w, eps=1e-6: torch.empty_like(x), "CompositeExplicitAutograd")
    return one


@pytest.fixture
def fresh(norm) -> Cell:
    """The rmsnorm op as every test expects it: a float32 instance, no hooks."""
    norm.install(norm.same(f32))
    yield norm
    norm.launcher.on_miss(None)
    norm.launcher.allocate_with(None)


@pytest.mark.parametrize("shape", [(4, 128), (5, 123), (2, 3, 7), (7,), (1, 1)])
def test_forward_gives_values_and_the_saved_tensor(fresh, shape):
    x, w = torch.randn(shape), torch.randn(shape[-1])
    torch.testing.assert_close(op("rmsnorm")(x, w, 1e-3), rmsnorm(x, w, 1e-3))
    y, rstd = op("rmsnorm_forward")(x, w)
    torch.testing.assert_close(y, rmsnorm(x, w))
    torch.testing.assert_close(rstd, torch.rsqrt(x.pow(2).mean(-1) + 1e-6).reshape(-1))


@pytest.mark.parametrize("dtype", [f64, f16, bf16])
def test_other_dtypes_are_other_instances(fresh, dtype):
    fresh.install(fresh.same(f32), fresh.same(dtype), fresh.instance({"x": dtype, "w": f32}))
    x, w = torch.randn(5, 123, dtype=dtype), torch.randn(123, dtype=dtype)
    got = op("rmsnorm")(x, w)
    assert got.dtype == dtype
    torch.testing.assert_close(got, rmsnorm(x, w), rtol=2e-2 if dtype == bf16 else 2e-3, atol=1e-3)
    mixed = op("rmsnorm")(x, w.float())
    torch.testing.assert_close(mixed.float(), rmsnorm(x, w.float()).float(), rtol=2e-2, atol=1e-2)
    assert mixed.dtype == dtype


def test_a_new_dtype_is_built_through_the_miss_callback(fresh):
    asked = []

    def build(dtypes):
        asked.append(dtypes)
        fresh.install(fresh.same(f32), fresh.same(f64))

    fresh.launcher.on_miss(build)
    x, w = torch.randn(3, 4, dtype=f64), torch.randn(4, dtype=f64)
    for _ in range(2):
        torch.testing.assert_close(op("rmsnorm")(x, w), rmsnorm(x, w))
    assert asked == [(f64, f64, f64, f32)]


def test_what_the_miss_callback_says_is_raised(fresh):
    def refuse(dtypes):
        return "rmsnorm has no form for int32; it has float32" if dtypes[0] == torch.int32 else None

    def fail(dtypes):
        raise ValueError("the compiler is gone")

    fresh.launcher.on_miss(refuse)
    with pytest.raises(
        RuntimeError, match=r"^native_tests::rmsnorm \(cpp\): rmsnorm has no form for int32; it has float32$"
    ):
        op("rmsnorm")(torch.ones(2, 2, dtype=torch.int32), torch.ones(2))
    with pytest.raises(RuntimeError, match="no kernel was built for these dtypes: x float64, w float32"):
        op("rmsnorm")(torch.ones(2, 2, dtype=f64), torch.ones(2))  # the callback said yes and installed nothing
    fresh.launcher.on_miss(fail)
    with pytest.raises(RuntimeError, match="the compiler is gone"):
        op("rmsnorm")(torch.ones(2, 2, dtype=f64), torch.ones(2))


def test_without_a_miss_callback_the_dtypes_are_named(fresh):
    with pytest.raises(RuntimeError, match="no kernel was built for these dtypes: x bfloat16, w float32"):
        op("rmsnorm")(torch.ones(2, 2, dtype=bf16), torch.ones(2))


def test_another_body_is_installed_without_another_launcher(fresh):
    x, w = torch.randn(3, 5), torch.randn(5)
    again = cell(fresh.schema, RMSNORM.replace("float(w[c]))", "float(w[c]) * 10)"))
    fresh.launcher.install(native.descriptor(again.declaration, [again.same(f32)]))
    torch.testing.assert_close(op("rmsnorm")(x, w), 10 * rmsnorm(x, w))
    fresh.install(fresh.same(f32))
    torch.testing.assert_close(op("rmsnorm")(x, w), rmsnorm(x, w))


def test_an_unmet_require_says_text_values_and_line(fresh):
    message = r"require w.shape == \(cols,\) is not met: w.shape is \(3,\), cols is 4 \(line 4\)"
    with pytest.raises(RuntimeError, match=rf"^native_tests::rmsnorm \(cpp\): {message}$"):
        op("rmsnorm")(torch.ones(2, 4), torch.ones(3))


def test_texts_and_lines_are_data(fresh):
    moved = cell(fresh.schema, "\n\n" + RMSNORM, first_line=10)
    fresh.launcher.install(native.descriptor(moved.declaration, [moved.same(f32)]))
    with pytest.raises(RuntimeError, match=r"\(line 14\)$"):
        op("rmsnorm")(torch.ones(2, 4), torch.ones(3))


def test_a_wrong_rank_is_told_by_the_unpacking(fresh):
    with pytest.raises(
        RuntimeError, match=r"\*_, cols = x.shape: x.shape has 0 dimensions, needs at least 1 \(line 2\)"
    ):
        op("rmsnorm")(torch.tensor(1.0), torch.ones(1))


def test_another_device_is_refused(fresh):
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    with pytest.raises(RuntimeError, match="w is on device type .*, x on cpu"):
        op("rmsnorm").default.redispatch(keys, torch.ones(2, 4), torch.ones(4, device="meta"))


def test_empty_tensors_call_nothing(fresh):
    y, rstd = op("rmsnorm_forward")(torch.ones(0, 4), torch.ones(4))
    assert (y.shape, rstd.shape) == ((0, 4), (0,))
    y, rstd = op("rmsnorm_forward")(torch.ones(3, 0), torch.ones(0))
    assert (y.shape, rstd.shape) == ((3, 0), (3,))


def test_a_transposed_input_is_copied_and_the_output_has_the_strides_of_the_reference(fresh):
    x, w = torch.randn(6, 4).t(), torch.randn(6)
    fresh.launcher.copied()
    y = op("rmsnorm")(x, w)
    assert (fresh.launcher.copied(), fresh.launcher.copied()) == ((0,), ())
    torch.testing.assert_close(y, rmsnorm(x, w))
    assert y.stride() == rmsnorm(x, w).stride() == (1, 4)
    assert op("rmsnorm_forward")(x, w)[1].is_contiguous()
    sliced = torch.randn(4, 12)[:, ::2]
    torch.testing.assert_close(op("rmsnorm")(sliced, w), rmsnorm(sliced, w))


def test_inputs_that_require_a_gradient_are_copied_without_a_graph(fresh):
    x = torch.randn(6, 4, requires_grad=True)
    y = op("rmsnorm")(x.t(), torch.randn(6))
    assert y.shape == (4, 6)
    assert torch.is_grad_enabled()


def test_the_layout_flag_asks_for_strides_at_every_call(fresh):
    asked = []

    def layout(x, w, eps=1e-6):
        asked.append((x.shape, eps))
        return torch.empty(x.shape[::-1]).t()

    impl = torch.library.Library("wb_layout", "IMPL")
    impl.impl(f"{NS}__rmsnorm", layout, "CPU")
    x, w = torch.randn(4, 6), torch.randn(6)
    fresh.install(fresh.same(f32), layout=True)
    y = op("rmsnorm")(x, w, 0.5)
    assert asked == [((4, 6), 0.5)]
    assert y.stride() == (1, 4)
    torch.testing.assert_close(y, rmsnorm(x, w, 0.5))
    impl._destroy()


def test_a_layout_of_another_shape_is_left_to_the_checks(fresh):
    impl = torch.library.Library("wb_layout", "IMPL")
    impl.impl(f"{NS}__rmsnorm", lambda x, w, eps=1e-6: torch.empty(1), "CPU")
    fresh.install(fresh.same(f32), layout=True)
    assert op("rmsnorm")(torch.ones(4, 6), torch.ones(6)).shape == (4, 6)
    impl._destroy()


def test_a_layout_that_fails_is_an_error_of_the_call(fresh):
    def layout(x, w, eps=1e-6):
        raise ValueError("no such shape")

    impl = torch.library.Library("wb_layout", "IMPL")
    impl.impl(f"{NS}__rmsnorm", layout, "CPU")
    fresh.install(fresh.same(f32), layout=True)
    with pytest.raises(RuntimeError, match="asking for the strides of the outputs failed"):
        op("rmsnorm")(torch.ones(4, 6), torch.ones(6))
    impl._destroy()


def test_a_misaligned_input_is_refused(fresh):
    odd = torch.from_numpy(np.frombuffer(bytearray(64), dtype=np.uint8)[1:33].view(np.float32).reshape(2, 4))
    assert odd.data_ptr() % 4 == 1
    with pytest.raises(RuntimeError, match="x does not begin at a multiple of its element size, 4 bytes"):
        op("rmsnorm")(odd, torch.ones(4))


def test_a_range_of_2_to_31_is_checked_before_the_kernel_sees_it():
    one = made(
        "wide",
        "Tensor x, SymInt n",
        "Tensor",
        "//! twice = n * 2\n//! out = empty(1)\nvoid wide(float* out, int twice, unsigned char n) { out[0] = twice; }",
    )
    one.install(one.same(f32))
    assert op("wide")(torch.ones(1), 7).item() == 14
    with pytest.raises(RuntimeError, match=r"\(cpp\): n = 256 does not fit the parameter `uint8_t n` of wide"):
        op("wide")(torch.ones(1), 256)
    with pytest.raises(RuntimeError, match=r"n = -1 does not fit the parameter `uint8_t n` of wide"):
        op("wide")(torch.ones(1), -1)
    with pytest.raises(RuntimeError, match=r"twice = 2147483648 does not fit the parameter `int twice` of wide"):
        op("wide")(torch.ones(1), 2**30)
    with pytest.raises(RuntimeError, match=r"twice = n \* 2: integer overflow in 4611686018427387904 \* 2 \(line 2\)"):
        op("wide")(torch.ones(1), 2**62)


ARITHMETIC = """\
//! a = n // k
//! b = n % k
//! c = cdiv(n, k)
//! d = n / k
//! e = next_power_of_2(n)
//! g = sqrt(n) if n >= 0 else -1.5
//! h = min(n, k, 3) - max(n, k)
//! i = -n + 1
//! j = n if not n > 3 and k != 2 else k
//! ok = 0 < n <= 7 or k == -2
//! out = empty(10, dtype=float64)
void arithmetic(double* out, int64_t a, int64_t b, int64_t c, double d, long e, float g, long long h, int i, short j, bool ok) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = g; out[6] = h; out[7] = i; out[8] = j; out[9] = ok;
}
"""


def test_directives_compute_as_python_does():
    one = made("arithmetic", "Tensor x, SymInt n, SymInt k", "Tensor", ARITHMETIC)
    one.install(one.instance({"x": f32}))
    for n in (-9, -8, -7, -1, 0, 1, 7, 8, 9):
        for k in (-4, -2, -1, 1, 2, 3):
            power = 1 if n <= 1 else 1 << (n - 1).bit_length()
            want = [n // k, n % k, -(-n // k), n / k, power, n**0.5 if n >= 0 else -1.5, min(n, k, 3) - max(n, k), -n + 1,
                    n if not n > 3 and k != 2 else k, 0 < n <= 7 or k == -2]  # fmt: skip
            torch.testing.assert_close(
                op("arithmetic")(torch.ones(1), n, k), torch.tensor(want, dtype=f64), rtol=1e-6, atol=0
            )
    with pytest.raises(
        RuntimeError, match=r"native_tests::arithmetic \(cpp\): a = n // k: division by zero \(line 2\)"
    ):
        op("arithmetic")(torch.ones(1), 1, 0)
    with pytest.raises(RuntimeError, match=r"a = n // k: integer overflow"):
        op("arithmetic")(torch.ones(1), -(2**63), -1)
    with pytest.raises(RuntimeError, match=r"e = next_power_of_2\(n\): integer overflow"):
        op("arithmetic")(torch.ones(1), 2**62 + 1, 3)


def test_nothing_to_do_divides_nothing():
    one = made(
        "divide",
        "Tensor x",
        "Tensor",
        "//! cols = x.shape[-1]\n//! rows = x.numel() // cols\n//! out = empty_like(x)\nvoid divide(const float* x, float* out, int rows, int cols) { for (int i = 0; i < rows * cols; ++i) out[i] = x[i]; }",
    )
    one.install(one.same(f32))
    assert op("divide")(torch.ones(3, 0)).shape == (3, 0)
    assert op("divide")(torch.ones(2, 3)).sum() == 6
    with pytest.raises(
        RuntimeError, match=r"cols = x.shape\[-1\]: index -1 is out of range for 0 dimensions \(line 2\)"
    ):
        op("divide")(torch.tensor(1.0))


SHAPES = """\
//! B, *_, D = x.shape
//! require x.shape[1:-1] != (5,) and x.dim() >= 2 and x.dtype == float32 and x.element_size() == 4
//! require y is None or y.shape == (*x.shape[:-1], 1)
//! out = zeros(*x.shape[1:], B, dtype=int64)
//! same = empty_like(x, dtype=float64 if B > 2 else float32)
//! n = out.numel() + out.shape[-1] * 1000
//! size = same.element_size()
template <typename S> void shapes(const float* x, const float* y, int64_t* out, S* same, int n, int size, int D) {
  out[0] = n; out[1] = size; out[2] = D; out[3] = y != nullptr; same[0] = x[0];
}
"""


def test_shapes_splats_and_dtypes():
    one = made("shapes", "Tensor x, Tensor? y=None", "(Tensor out, Tensor same)", SHAPES, returns=("out", "same"))
    dtypes = {"x": f32, "y": None, "out": torch.int64, "same": f32}
    one.install(one.instance(dtypes), one.instance({**dtypes, "same": f64}))
    out, same = op("shapes")(torch.ones(2, 3, 4))
    assert (out.shape, out.dtype, same.dtype) == ((3, 4, 2), torch.int64, f32)
    assert out.flatten()[:5].tolist() == [24 + 2000, 4, 4, 0, 0]
    out, same = op("shapes")(torch.ones(3, 3, 4), torch.ones(3, 3, 1))
    assert (out.flatten()[:4].tolist(), same.dtype) == ([36 + 3000, 8, 4, 1], f64)
    with pytest.raises(RuntimeError, match=r"y.shape is \(3, 3, 2\), x.shape is \(3, 3, 4\) \(line 4\)"):
        op("shapes")(torch.ones(3, 3, 4), torch.ones(3, 3, 2))
    with pytest.raises(RuntimeError, match=r"x.shape is \(2, 5, 4\), x.dim\(\) is 3, x.dtype is float32"):
        op("shapes")(torch.ones(2, 5, 4))


def test_optional_tensors_and_numbers():
    text = """\
//! by = 2.0 if scale is None else scale
//! has = shift is not None
//! out = empty_like(x)
//! n = x.numel()
void optional(const float* x, const float* shift, float* out, double by, bool has, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * by + (shift ? shift[i] : 0) + (has ? 0 : 100);
}"""
    one = made(
        "optional",
        "Tensor x, Tensor? shift=None, float? scale=None, str how='plain', int[]? at=None, bool? on=None",
        "Tensor",
        text,
    )
    one.install(one.same(f32))
    x = torch.tensor([1.0, 2.0])
    assert op("optional")(x).tolist() == [102.0, 104.0]
    assert op("optional")(x, x, 3.0, "a longer string than is kept in place", [1, 2], True).tolist() == [4.0, 8.0]
    LAYOUT.define(f"{NS}__optional(Tensor x, Tensor? shift, float? scale, str how, int[]? at, bool? on) -> Tensor")
    seen = []

    def layout(x, *rest):
        seen.append(rest)
        return torch.empty_like(x)

    LAYOUT.impl(f"{NS}__optional", layout, "CompositeExplicitAutograd")
    wide = torch.arange(8.0)[::4]
    assert op("optional")(wide, None, 3.0, "how", [1, 2], False).tolist() == [100.0, 112.0]
    assert seen == [(None, 3.0, "how", [1, 2], False)]


def test_a_tensor_that_is_none_has_no_shape():
    one = made(
        "needs",
        "Tensor x, Tensor? y=None",
        "Tensor",
        "//! n = y.numel()\n//! out = empty(n)\nvoid needs(const float* x, float* out, int n) { for (int i = 0; i < n; ++i) out[i] = x[0]; }",
    )
    one.install(one.same(f32))
    assert op("needs")(torch.ones(1), torch.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"n = y.numel\(\): y is None \(line 2\)"):
        op("needs")(torch.ones(1))


def test_a_tensor_that_no_kernel_takes_may_have_any_dtype():
    one = made(
        "ignored",
        "Tensor x, Tensor like",
        "Tensor",
        "//! n = like.numel()\n//! out = empty(n)\nvoid ignored(const float* x, float* out, int n) { for (int i = 0; i < n; ++i) out[i] = x[0]; }",
    )
    one.install(one.same(f32))
    assert op("ignored")(torch.ones(1), torch.ones(2, dtype=bf16)).tolist() == [1, 1]


IN_PLACE = """\
//! rows, cols = cache.shape
//! a, b = cache.stride()
//! require x.shape == cache.shape
void add_(const float* x, float* cache, float alpha, int rows, int cols, int64_t a, int64_t b) {
  for (int r = 0; r < rows; ++r) for (int c = 0; c < cols; ++c) cache[r * a + c * b] += alpha * x[r * cols + c];
}"""


def test_an_in_place_op_with_strides_writes_through_any_view():
    one = made("add_", "Tensor x, Tensor(a!) cache, float alpha=1.0", "()", IN_PLACE)
    one.install(one.same(f32))
    x, base = torch.randn(3, 4), torch.zeros(4, 6)
    assert op("add_")(x, base[:, ::2].t(), 2.0) is None
    torch.testing.assert_close(base[:, ::2].t(), 2 * x)
    assert base[:, 1::2].abs().sum() == 0
    assert op("add__forward")(x, torch.zeros(3, 4)) in (None, ())
    op("add_")(torch.ones(0, 4), torch.ones(0, 4))


def test_a_mutated_argument_is_never_copied():
    one = made(
        "fill_",
        "Tensor(a!) x, float v",
        "()",
        "//! n = x.numel()\nvoid fill_(float* x, float v, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] = v; }",
    )
    one.install(one.same(f32))
    x = torch.zeros(2, 3)
    op("fill_")(x, 2.0)
    assert x.sum() == 12
    with pytest.raises(
        RuntimeError,
        match=r"x is written in place and not contiguous, and no directive reads x.stride\(\); its strides are \(1, 3\)",
    ):
        op("fill_")(x.t(), 3.0)
    assert x.sum() == 12


def test_int64_0_dim_and_workspace_outputs():
    text = """\
//! n = x.numel()
//! largest = empty((), dtype=float32)
//! index = empty((), dtype=int64)
//! count = zeros(2, n, dtype=int32)
void best(const float* x, float* largest, long long* index, int* count, int64_t n) {
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) { if (x[i] > x[at]) at = i; count[n + i] += count[i] + 1; }
  *largest = x[at]; *index = count[n] == 1 ? at : -1;
}"""
    one = made("best", "Tensor x", "(Tensor largest, Tensor index)", text, returns=("largest", "index"))
    one.install(one.same(f32))
    for _ in range(3):
        largest, index = op("best")(torch.tensor([1.0, 9.0, 3.0]))
        assert (largest.shape, largest.item(), index.dtype, index.item()) == ((), 9.0, torch.int64, 1)


def test_backward_gives_the_gradients_in_the_order_of_the_arguments(fresh):
    one = load(cell(fresh.schema, BACKWARD, entry="backward"))
    LIBRARY.define(
        "rmsnorm_backward(Tensor? grad_y, Tensor x, Tensor w, float eps, Tensor y, Tensor rstd) -> (Tensor, Tensor)"
    )
    one.launcher.register()
    one.install(one.same(f32))
    x, w = torch.randn(5, 123, requires_grad=True), torch.randn(123, requires_grad=True)
    y, rstd = op("rmsnorm_forward")(x.detach(), w.detach())
    g = torch.randn_like(y)
    want = torch.autograd.grad(rmsnorm(x, w), (x, w), g)
    got = op("rmsnorm_backward")(g, x.detach(), w.detach(), 1e-6, y, rstd)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    none = op("rmsnorm_backward")(None, x.detach(), w.detach(), 1e-6, y, rstd)
    assert [t.abs().sum().item() for t in none] == [0.0, 0.0]


def test_tuned_values_and_literals_come_with_the_descriptor():
    text = "//! tune BLOCK = 4, 8\n//! tune RATE = 0.5, 0.25\n//! m = BLOCK * 3\n//! out = empty(m)\ntemplate <int BLOCK> void tuned(float* out, int m, double r) {}\n"
    body = "//! r = RATE * 2\n"
    text = text.replace("//! out", body + "//! out").replace(
        "{}", "{ for (int i = 0; i < m; ++i) out[i] = BLOCK + r; }"
    )
    one = made("tuned", "Tensor x", "Tensor", text)
    one.install(one.instance({"x": f32}))
    assert op("tuned")(torch.ones(1)).tolist() == [5.0] * 12
    other = {"BLOCK": 8, "RATE": 0.25}
    one.install(one.instance({"x": f32}, other), tuned=other)
    assert op("tuned")(torch.ones(1)).tolist() == [8.5] * 24
    edited = cell(one.schema, text.replace("* 3", "* 2"))
    one.launcher.install(native.descriptor(edited.declaration, [edited.instance({"x": f32})]))
    assert op("tuned")(torch.ones(1)).tolist() == [5.0] * 8


def test_a_kernel_may_bear_the_name_of_a_c_function():
    body = "{ for (int64_t i = 0; i < n; ++i) out[i] = exp(x[i]) + expf(x[i]); }"
    for name, head in (("exp", "void exp(const float* x, float* out, int64_t n)"),
                       ("abs", "template <typename T> void abs(const T* x, T* out, int64_t n)")):  # fmt: skip
        one = made(name, "Tensor x", "Tensor", f"//! n = x.numel()\n//! out = empty_like(x)\n{head} {body}")
        one.install(one.same(f32))
        x = torch.randn(5)
        torch.testing.assert_close(op(name)(x), 2 * x.exp())


def test_what_a_kernel_throws_is_raised_and_leaks_nothing():
    one = made(
        "throws",
        "Tensor x",
        "Tensor",
        '#include <stdexcept>\n//! out = empty_like(x)\nvoid throws(const float* x, float* out) { out[0] = 1; if (x[0] > 0) throw std::runtime_error("no positive numbers"); }',
    )
    one.install(one.same(f32))
    with pytest.raises(RuntimeError, match="no positive numbers"):
        op("throws")(torch.ones(1))
    assert op("throws")(-torch.ones(1)).item() == 1


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def test_neither_calls_nor_errors_leak(fresh):
    x, w, t = torch.randn(64, 1024), torch.randn(1024), torch.randn(1024, 64).t()

    def some(n):
        for _ in range(n):
            op("rmsnorm_forward")(x, w)
            op("rmsnorm")(t, w)
            with pytest.raises(RuntimeError):
                op("rmsnorm")(x, w[1:])

    some(50)
    gc.collect()
    before = resident_mb()
    some(300)
    assert resident_mb() - before < 20  # a leak of one output a call would be 150 MB


def test_the_allocation_hook_gives_the_memory_of_outputs_and_workspace(fresh):
    kept, sizes = [], []

    def allocate(nbytes):
        sizes.append(nbytes)
        kept.append(ctypes.create_string_buffer(b"\xff" * (nbytes + 64), nbytes + 64))
        return (ctypes.addressof(kept[-1]) + 63) // 64 * 64

    fresh.launcher.allocate_with(allocate)
    x, w = torch.randn(3, 5), torch.randn(5)
    y, rstd = op("rmsnorm_forward")(x, w)
    assert sizes == [60, 12]
    assert ctypes.addressof(kept[0]) <= y.data_ptr() < ctypes.addressof(kept[0]) + 128
    torch.testing.assert_close(y, rmsnorm(x, w))
    transposed = torch.randn(5, 3).t()
    y = op("rmsnorm")(transposed, w)
    assert y.stride() == (1, 3)
    torch.testing.assert_close(y, rmsnorm(transposed, w))
    fresh.launcher.allocate_with(lambda nbytes: None)
    with pytest.raises(RuntimeError, match="the allocation hook gave no memory"):
        op("rmsnorm")(x, w)
    fresh.launcher.allocate_with(None)
    assert len(kept) == len(sizes) == 4


def test_a_launcher_is_taken_back_and_put_again(fresh):
    x, w = torch.randn(2, 4), torch.randn(4)
    fresh.launcher.unregister()
    fresh.launcher.unregister()
    with pytest.raises(NotImplementedError):
        op("rmsnorm")(x, w)
    fresh.launcher.register()
    fresh.launcher.register()
    torch.testing.assert_close(op("rmsnorm")(x, w), rmsnorm(x, w))


def test_before_anything_is_installed_a_call_says_so():
    one = made(
        "empty_handed",
        "Tensor x",
        "Tensor",
        "//! out = empty_like(x)\nvoid empty_handed(const float* x, float* out) { *out = *x; }",
    )
    assert one.launcher.installed is None
    with pytest.raises(RuntimeError, match=r"native_tests::empty_handed \(cpp\): no kernel is installed"):
        op("empty_handed")(torch.ones(1))


def test_a_negative_size_is_refused():
    one = made(
        "negative",
        "Tensor x, SymInt n",
        "Tensor",
        "//! out = empty(3, n)\nvoid negative(const float* x, float* out) { *out = *x; }",
    )
    one.install(one.same(f32))
    with pytest.raises(RuntimeError, match=r"out = empty\(3, n\): size -1 is negative \(line 2\)"):
        op("negative")(torch.ones(1), -1)
    with pytest.raises(RuntimeError, match="integer overflow"):
        op("negative")(torch.ones(1), 2**61)


def test_a_file_that_is_no_library_is_a_build_error(tmp_path):
    path = tmp_path / "body.so"
    path.write_bytes(b"not an object")
    with pytest.raises(BuildError, match="cannot be loaded"):
        native.Launcher(str(path))


def test_a_library_without_the_kernel_is_a_build_error(fresh):
    other = cell(
        f"{NS}::other(Tensor x) -> Tensor",
        "//! out = empty_like(x)\nvoid other(const float* x, float* out) { *out = *x; }",
    ).same(f32)
    wrong = native.Instance(fresh.same(f32).dtypes, other.library, fresh.same(f32).body)
    with pytest.raises(BuildError, match="has no function wb_call_rmsnorm"):
        native.descriptor(fresh.declaration, [wrong])


def test_threads_may_call_while_kernels_are_swapped(fresh):
    x, w = torch.randn(3, 5), torch.randn(5)
    once, tenfold = rmsnorm(x, w), 10 * rmsnorm(x, w)
    again = cell(fresh.schema, RMSNORM.replace("float(w[c]))", "float(w[c]) * 10)"))
    both = [fresh.same(f32), again.same(f32)]
    seen, wrong, stop = [], [], threading.Event()

    def call():
        while not stop.is_set():
            y = op("rmsnorm")(x, w)
            seen.append(1)
            if not (torch.allclose(y, once) or torch.allclose(y, tenfold)):
                wrong.append(y)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for t in threads:
        t.start()
    for i in range(200):
        fresh.launcher.install(native.descriptor(fresh.declaration, [both[i % 2]]))
    stop.set()
    for t in threads:
        t.join()
    assert seen
    assert not wrong


def test_a_kernel_without_a_form_names_parameter_and_dtypes(fresh):
    plain = cell(
        f"{NS}::plain(Tensor x) -> Tensor", "//! out = empty_like(x)\nvoid plain(const float* x, float* out) {}"
    )
    message = "plain has no form for bfloat16: its parameter 'const float\\* x' takes float32 alone, x is bfloat16"
    with pytest.raises(SchemaError, match=message) as caught:
        plain.same(bf16)
    assert caught.value.line == 3
