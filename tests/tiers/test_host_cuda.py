"""Host cells in CUDA: built, installed and called; their kernels run on the host behind a driver that records."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.host_cuda_tools import installed, pretended_gpu
from workbench import tiers
from workbench.errors import BuildError, SchemaError
from workbench.source import Source

X = torch.linspace(-2, 3, 24).reshape(4, 6)
SCALE = """\
template <typename T, int N> __global__ void times(const T* __restrict__ x, T* out, float k, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(N) + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * k);
}
Tensor scale(const Tensor& x, float k) {
  Tensor out = torch::stable::empty_like(x);
  const int64_t n = x.numel();
  if (n == 0) return out;
  const dim3 grid((n + 7) / 8);
  if (x.scalar_type() == ScalarType::Float)
    times<float, 8><<<grid, 8, 0, wb::current_stream()>>>(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), k, n);
  else
    times<double, 8><<<grid, 8, 0, wb::current_stream()>>>(x.const_data_ptr<double>(), out.mutable_data_ptr<double>(), k, n);
  return out;
}
"""


@pytest.fixture(scope="module")
def fake():
    with pretended_gpu() as made:
        yield made


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    return scale


def raised(op, text: str, *arguments) -> str:
    kernel = installed(op, text)
    try:
        with pytest.raises(RuntimeError) as caught:
            op(*arguments)
    finally:
        kernel.remove()
    return str(caught.value)


# ---------------------------------------------------------------- values


def test_a_function_launches_the_kernels_beside_it(fake, scale):
    fake.set(stream=0x77)
    fake.take()
    kernel = installed(scale, SCALE)
    assert torch.equal(scale(X, 3.0), X * 3)
    assert torch.equal(scale(X.double(), 0.5), X.double() * 0.5)
    first, second = fake.launches()
    assert (tuple(first.grid), tuple(first.block), first.shared, first.stream) == ((3, 1, 1), (8, 1, 1), 0, 0x77)
    assert first.context == 0x1000, "the tensors' GPU was the current one"
    assert first.kernel != second.kernel
    assert kernel.device == "cuda"
    kernel.remove()


def test_the_device_half_alone_is_exchanged_by_one_store(fake, scale):
    former = installed(scale, SCALE)
    edited = SCALE.replace("* k)", "* k + 1)").replace("  if (i < n)", "\n\n  if (i < n)")
    kernel = installed(scale, edited)
    assert kernel.built.host.path == former.built.host.path, (
        "the lines that the kernel grew by are no edit of the host half"
    )
    assert kernel.built.device.path != former.built.device.path
    assert kernel.shares_launcher(former)
    assert torch.equal(scale(X, 3.0), X * 3 + 1)
    former.kernels.hand_over()
    assert torch.equal(scale(X, 3.0), X * 3)
    kernel.remove()


def test_an_edit_of_the_host_half_keeps_the_device_half(fake, scale):
    former = installed(scale, SCALE)
    former.remove()
    kernel = installed(scale, SCALE.replace("if (n == 0) return out;", "if (n == 0) return out;\n  k = -k;"))
    assert kernel.built.device.path == former.built.device.path
    assert kernel.built.host.path != former.built.host.path
    assert not kernel.shares_launcher(former)
    assert torch.equal(scale(X, 3.0), X * -3)
    kernel.remove()


def test_template_arguments_that_host_templates_decide(fake, scale):
    text = SCALE.replace(
        "Tensor scale(",
        """\
template <typename T> void go(const Tensor& x, Tensor& out, float k) {
  const int64_t n = x.numel();
  auto kernel = times<T, 4>;
  kernel<<<(n + 3) / 4, 4, 0, wb::current_stream()>>>(x.const_data_ptr<T>(), out.mutable_data_ptr<T>(), k, n);
}
Tensor scale(""",
    )
    begin = text.index("  const dim3 grid")
    text = (
        text[:begin]
        + "  x.scalar_type() == ScalarType::Float ? go<float>(x, out, k) : go<int>(x, out, k);\n  return out;\n}\n"
    )
    kernel = installed(scale, text)
    assert sorted(kernel.built.kernels) == ["_Z5timesIfLi4EEvPKT_PS0_fl", "_Z5timesIiLi4EEvPKT_PS0_fl"]
    assert torch.equal(scale(X, 3.0), X * 3)
    kernel.remove()


def test_arguments_are_converted_by_the_kernels_own_signature(fake, namespace):
    @wb.op(f"{namespace}::put")
    def put(x: Tensor, a: int, b: bool, c: float) -> Tensor:
        return torch.tensor([a, b, c], dtype=torch.float64)

    kernel = installed(put, """\
struct Pair { short a; float c; __host__ __device__ float sum() const { return a + c; } };
namespace { __global__ void fill(double* out, Pair p, unsigned char b, const float* nothing = nullptr) {
  if (threadIdx.x == 0) { out[0] = p.a; out[1] = b; out[2] = p.sum() - p.a + (nothing != nullptr); }
} }
Tensor put(const Tensor& x, int a, bool b, double c) {
  Tensor out = torch::stable::new_empty(x, {3}, ScalarType::Double);
  fill<<<1, 32>>>(out.mutable_data_ptr<double>(), Pair{short(a), float(c)}, b);
  return out;
}
""")  # fmt: skip
    assert put(X, -7, True, 0.25).tolist() == [-7.0, 1.0, 0.25]
    kernel.remove()


def test_several_outputs_saved_tensors_lists_and_options(fake, namespace):
    @wb.op(f"{namespace}::parts", returns=("lo", "hi"))
    def parts(xs: list[Tensor], at: float | None = None) -> tuple[Tensor, Tensor]:
        x = torch.cat([t.reshape(-1) for t in xs])
        return x.clamp(max=0 if at is None else at), x.clamp(min=0 if at is None else at)

    kernel = installed(parts, """\
__global__ void part(const float* x, float* lo, float* hi, float at, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) lo[i] = x[i] < at ? x[i] : at, hi[i] = x[i] > at ? x[i] : at;
}
std::tuple<Tensor, Tensor> parts(const std::vector<Tensor>& xs, std::optional<float> at) {
  int64_t n = 0, done = 0;
  for (const Tensor& t : xs) n += t.numel();
  Tensor lo = torch::stable::new_empty(xs[0], {n}), hi = torch::stable::new_empty(xs[0], {n});
  for (const Tensor& t : xs) {
    const int m = t.numel();
    if (m) part<<<(m + 15) / 16, 16, 0, wb::current_stream()>>>(t.const_data_ptr<float>(), lo.mutable_data_ptr<float>() + done,
                                                       hi.mutable_data_ptr<float>() + done, at.value_or(0), m);
    done += m;
  }
  return {lo, hi};
}
""")  # fmt: skip
    for at in (None, 1.5):
        got, wanted = parts([X, X[0], X[:0]], at), parts.reference([X, X[0], X[:0]], at)
        assert [torch.equal(g, w) for g, w in zip(got, wanted, strict=True)] == [True, True]
    kernel.remove()


def test_a_function_that_changes_its_argument(fake, namespace):
    @wb.op(f"{namespace}::add_", mutates=("x",))
    def add_(x: Tensor, k: float) -> None:
        x.add_(k)

    kernel = installed(
        add_,
        """\
__global__ void add(float* x, float k, int n) { int i = threadIdx.x; if (i < n) x[i] += k; }
void add_(Tensor& x, float k) {
  add<<<1, x.numel(), 0, wb::current_stream()>>>(x.mutable_data_ptr<float>(), k, x.numel());
}
""",
    )
    x = X.clone()
    add_(x, 2.0)
    assert torch.equal(x, X + 2)
    kernel.remove()


def test_a_void_function_whose_output_a_directive_makes(fake, scale):
    kernel = installed(
        scale,
        """\
//! out = empty(x.shape)
__global__ void times(const float* x, float* out, float k, int n) { int i = threadIdx.x; if (i < n) out[i] = x[i] * k; }
void scale(const Tensor& x, float k, Tensor& out) {
  times<<<1, x.numel(), 0, wb::current_stream()>>>(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), k, x.numel());
}
""",
    )
    assert torch.equal(scale(X, 3.0), X * 3)
    assert torch.equal(scale(X.t(), 3.0), X.t() * 3), "an argument that is not contiguous"
    kernel.remove()


def test_a_kernel_that_is_called_like_the_op(fake, scale, namespace):
    text = (
        SCALE.replace("void times(", "void scale(")
        .replace("times<", "scale<")
        .replace("Tensor scale(", "Tensor of_host(")
    )
    kernel = installed(scale, text)
    assert (kernel.function.name, torch.equal(scale(X, 3.0), X * 3)) == ("of_host", True)
    kernel.remove()
    assert (
        str(tiers.infer_schema(Source(text, "cuda"), f"{namespace}::new"))
        == f"{namespace}::new(Tensor x, float k) -> Tensor"
    )


def test_a_backward_beside_its_forward(fake, scale):
    text = (
        SCALE
        + """\
Tensor backward(const Tensor& grad_out, float k) {
  return scale(grad_out, 2 * k);                 // wrong by 2, so that it shows who ran
}
"""
    )
    kernels = [installed(scale, text), installed(scale, text, "backward", floating=["x"])]
    x = X.clone().requires_grad_()
    scale(x, 3.0).sum().backward()
    assert torch.equal(x.grad, torch.full_like(X, 6.0))
    for k in kernels:
        k.remove()


# ---------------------------------------------------------------- launches that cannot be


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ("grid, 2048", r"a block has at most 1024 threads"),
        ("dim3(0), 8", "the grid needs at least 1 block; launch nothing where there is nothing to do"),
        ("dim3(1, 70000), 8", "a grid has at most (2147483647, 65535, 65535) blocks"),
        ("grid, 8, 1 << 20", "a block of this GPU (sm_90) has at most 232448"),
    ],
)
def test_a_launch_that_no_gpu_takes(fake, scale, configuration, said):
    text = SCALE.replace("grid, 8, 0, wb::current_stream()", configuration)
    message = raised(scale, text, X, 3.0)
    assert said in message
    assert "launching times on a grid of" in message


def test_a_launch_that_the_driver_refuses(fake, scale):
    fake.set(launch_code=701)
    try:
        said = "launching times failed: too many resources requested for launch (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)"
        assert said in raised(scale, SCALE, X, 3.0)
    finally:
        fake.set(launch_code=0)


def test_shared_memory_beyond_48_kb_is_asked_for(fake, scale):
    kernel = installed(scale, SCALE.replace("grid, 8, 0,", "grid, 8, 65536,"))
    fake.take()
    scale(X, 3.0)
    asked = [r for r in fake.take() if r.what == 5]
    assert [list(r.parameters[:2]) for r in asked] == [[8, 65536]]
    kernel.remove()


def test_a_kernel_that_is_called_like_a_function(fake, scale):
    text = SCALE.replace("<<<grid, 8, 0, wb::current_stream()>>>", "")
    assert "times is a kernel: write times<<<grid, block, 0, wb::current_stream()>>>(...)" in raised(
        scale, text, X, 3.0
    )


def test_what_the_runtime_offers_the_host_half(fake, scale):
    kernel = installed(
        scale,
        """\
__global__ void one(float* x) { x[0] = 1; }
Tensor scale(const Tensor& x, float k) {
  Tensor out = torch::stable::empty_like(x);
  cudaStream_t stream = wb::current_stream();
  cudaMemsetAsync(out.mutable_data_ptr<float>(), 0, out.numel() * sizeof(float), stream);
  cudaFuncSetAttribute(one, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
  one<<<1, 1, 0, stream>>>(out.mutable_data_ptr<float>());
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, cudaGetErrorString(cudaPeekAtLastError()));
  return out;
}
""",
    )
    wanted = torch.zeros_like(X)
    wanted[0, 0] = 1
    assert torch.equal(scale(X, 3.0), wanted)
    kernel.remove()


# ---------------------------------------------------------------- what is said


def built(op, text: str, slot: str = "forward", **options):
    kernel = tiers.kernel(Source(text, "cuda", "cell [3]", 2), op.schema, slot, **options)
    kernel.build([])
    return kernel


def test_a_launch_without_a_stream_is_flagged_on_its_line(fake, scale):
    kernel = built(
        scale, SCALE.replace("times<double, 8><<<grid, 8, 0, wb::current_stream()>>>", "times<double, 8><<<grid, 8>>>")
    )
    (said,) = kernel.diagnostics
    assert (said.file, said.line, said.severity) == ("cell [3]", 14, "warning")
    assert said.message == "times is launched on the default stream: write <<<grid, 8, 0, wb::current_stream()>>>"


def test_an_error_of_the_host_half_is_on_its_line(fake, scale):
    with pytest.raises(BuildError) as caught:
        built(scale, SCALE.replace("const int64_t n = x.numel();", "const int64_t n = x.nummel();"))
    assert (caught.value.file, caught.value.line) == ("cell [3]", 8)
    assert "nummel" in caught.value.message


def test_a_parameter_that_binds_to_nothing(fake, scale):
    with pytest.raises(SchemaError) as caught:
        tiers.kernel(Source(SCALE.replace("float k)", "float kk)"), "cuda", "cell [3]", 2), scale.schema, "forward")
    assert (caught.value.line, "did you mean 'k'" in caught.value.message) == (6, True)
