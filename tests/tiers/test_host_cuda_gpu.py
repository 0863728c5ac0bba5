"""CUDA cells on Tensor on a GPU: forward and backward, streams, graphs, a second GPU, nvcc, torch's own extensions."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.build.test_host_cuda import FREE
from workbench import cells
from workbench.errors import TrialError

pytestmark = pytest.mark.gpu
SCALE = """\
#include <cuda_bf16.h>
template <typename T, int N> __global__ void times(const T* __restrict__ x, T* out, float k, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(N) + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * k);
}
template <typename T> void go(const Tensor& x, Tensor& out, float k) {
  const int64_t n = x.numel();
  if (n == 0) return;
  times<T, 256><<<(n + 255) / 256, 256, 0, wb::current_stream()>>>(
      static_cast<const T*>(x.const_data_ptr()), static_cast<T*>(out.mutable_data_ptr()), k, n);
}
Tensor scale(const Tensor& x, float k) {
  STD_TORCH_CHECK(x.dim() > 0, "scale: x has ", x.dim(), " dimensions");
  Tensor out = torch::stable::empty_like(x);
  if (x.scalar_type() == ScalarType::Float) go<float>(x, out, k);
  else if (x.scalar_type() == ScalarType::BFloat16) go<__nv_bfloat16>(x, out, k);
  else STD_TORCH_CHECK(false, "scale has no form for ", x.scalar_type());
  return out;
}
Tensor backward(const Tensor& grad_out, float k) { return scale(grad_out, k); }
"""
SPIN = """\
__global__ void spin(long long cycles) { const long long until = clock64() + cycles; while (clock64() < until) {} }
"""


@pytest.fixture
def lines():
    told = []
    cells.listeners.append(told.append)
    yield told
    cells.listeners.remove(told.append)


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 128)
        yield wb.case("odd", t(5, 123), 0.5)

    return scale


def gpu(*shape: int, device: str = "cuda", **options) -> Tensor:
    return torch.randn(*shape, device=device, **options)


def test_forward_and_backward_in_one_cell(scale, lines):
    wb.cuda(scale, SCALE)
    forward, backward = (op_versions(scale, slot) for slot in ("forward", "backward"))
    for version in (forward, backward):
        assert version.tier == "host", lines
        assert {o.status for o in version.trial.outcomes} == {"agree"}, [str(line) for line in lines]
    x = gpu(1000, 33, requires_grad=True)
    y = scale(x, 3.0)
    assert torch.equal(y, x * 3)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3.0))
    compiled = torch.compile(lambda x: scale(x, 3.0) + 1)
    torch.testing.assert_close(compiled(x), x * 3 + 1)
    half = gpu(7, 9, dtype=torch.bfloat16)
    torch.testing.assert_close(scale(half.t(), 0.5), half.t() * 0.5)


def op_versions(op, slot: str):
    return next(v for v in reversed(op.versions) if v.slot == slot and v.language == "cuda")


def test_an_edit_of_the_device_half_is_quick(scale):
    wb.cuda(scale, SCALE)
    began = time.perf_counter()
    wb.cuda(scale, SCALE.replace("float(x[i]) * k", "k * float(x[i])"))
    seconds = time.perf_counter() - began
    assert torch.equal(scale(gpu(5) * 0 + 1, 3.0), torch.full((5,), 3.0, device="cuda"))
    print(f"device half: {seconds:.3f} s")
    assert seconds < 2.0


def test_a_kernel_that_differs_is_refused(scale):
    wb.cuda(scale, SCALE)
    with pytest.raises(TrialError, match="differs on"):
        wb.cuda(scale, SCALE.replace("* k)", "* k + 0.5f)"))
    assert torch.equal(scale(gpu(5) * 0 + 1, 3.0), torch.full((5,), 3.0, device="cuda"))


def test_an_illegal_address_costs_the_worker_alone(scale):
    wb.cuda(scale, SCALE)
    with pytest.raises(TrialError) as caught:
        wb.cuda(scale, SCALE.replace("if (i < n) out[i]", "if (i < n) out[i + (1ll << 40)]"))
    assert caught.value.kind in ("crash", "overrun")
    assert torch.equal(scale(gpu(5) * 0 + 1, 3.0), torch.full((5,), 3.0, device="cuda"))


def test_a_side_stream_and_a_graph(scale):
    wb.cuda(scale, SCALE)
    x, side = gpu(1 << 16), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        y = scale(x.mul_(2), 3.0)
    side.synchronize()
    assert torch.equal(y, x * 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = scale(x, 0.5)
    x.fill_(7)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, torch.full_like(x, 3.5))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_a_second_gpu(scale):
    wb.cuda(scale, SCALE)
    here, there = gpu(100), gpu(100, device="cuda:1")
    with torch.cuda.device(0):
        assert torch.equal(scale(there, 3.0), there * 3)
        assert torch.cuda.current_device() == 0
        assert torch.equal(scale(here, 3.0), here * 3)
    x = there.clone().requires_grad_()
    scale(x, 2.0).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.0))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_tensors_of_two_gpus_are_refused(namespace):
    @wb.op(f"{namespace}::add")
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @add.cases
    def _(t):
        yield t(8), t(8)

    wb.cuda(add, """\
__global__ void plus(const float* x, const float* y, float* out, int n) { int i = threadIdx.x; if (i < n) out[i] = x[i] + y[i]; }
Tensor add(const Tensor& x, const Tensor& y) {
  Tensor out = torch::stable::empty_like(x);
  plus<<<1, x.numel(), 0, wb::current_stream()>>>(x.const_data_ptr<float>(), y.const_data_ptr<float>(), out.mutable_data_ptr<float>(), x.numel());
  return out;
}
""")  # fmt: skip
    with pytest.raises(RuntimeError, match="y is on cuda:1, x on cuda:0"):
        torch.ops.__getattr__(namespace).add(gpu(8), gpu(8, device="cuda:1"))


def test_a_void_function_with_its_output_from_a_directive(scale):
    wb.cuda(scale, """\
//! out = empty(x.shape)
template <typename T> __global__ void times(const T* x, T* out, float k, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = T(float(x[i]) * k);
}
void scale(const Tensor& x, float k, Tensor& out) {
  if (x.scalar_type() == ScalarType::Float)
    times<<<1, 256, 0, wb::current_stream()>>>(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), k, x.numel());
  else
    times<<<1, 256, 0, wb::current_stream()>>>((const __nv_bfloat16*)x.const_data_ptr(), (__nv_bfloat16*)out.mutable_data_ptr(), k, x.numel());
}
""".replace("template", "#include <cuda_bf16.h>\ntemplate", 1))  # fmt: skip
    x = gpu(33, 5)
    assert torch.equal(scale(x.t(), 3.0), x.t() * 3)


def test_shared_memory_beyond_48_kb_and_the_limits(scale):
    text = SCALE.replace("256, 0, wb", "256, 100000, wb")
    wb.cuda(scale, text)
    x = gpu(1000)
    assert torch.equal(scale(x, 3.0), x * 3)
    with pytest.raises(TrialError, match="a block of this GPU .* has at most"):
        wb.cuda(scale, SCALE.replace("256, 0, wb", "256, 1000000, wb"))


def test_a_launch_on_the_default_stream_is_told(scale, lines):
    wb.cuda(scale, SCALE.replace("256, 0, wb::current_stream()", "256"))
    assert any("launched on the default stream" in note for note in lines[-1].notes + lines[0].notes)


def test_nvcc_compiles_what_cannot_be_parted(scale, lines):
    @scale.cases
    def _(t):
        yield t(4, 128)

    wb.cuda(scale, FREE)
    assert any("nvcc compiled the whole cell, for cudaMemGetInfo" in note for note in lines[0].notes)
    x = gpu(1000)
    assert torch.equal(scale(x, 3.0), x * 3)
    if torch.cuda.device_count() > 1:
        y = gpu(100, device="cuda:1")
        assert torch.equal(scale(y, 3.0), y * 3)


def test_load_inline_with_cuda_sources(namespace):
    source = """\
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
__global__ void times(const float* x, float* out, float k, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) out[i] = x[i] * k; }
torch::Tensor scale(torch::Tensor x, double k) {
  const c10::cuda::CUDAGuard guard(x.device());
  auto out = torch::empty_like(x);
  const int n = x.numel();
  times<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), k, n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
    began = time.perf_counter()
    scale = wb.load_inline(namespace, "torch::Tensor scale(torch::Tensor x, double k);", source, functions=["scale"])
    print(f"load_inline with CUDA sources: {time.perf_counter() - began:.1f} s")
    x = gpu(1000)
    assert torch.equal(scale(x, 3.0), x * 3)


def test_a_full_cell_in_a_slot(scale):
    @scale.cases
    def _(t):
        yield t(4, 128)

    wb.cuda(scale, """\
#include <torch/extension.h>
template <typename T> __global__ void times(const T* x, T* out, float k, int64_t n) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = x[i] * T(k);
}
torch::Tensor scale(const torch::Tensor& x, float k) {
  auto c = x.contiguous(), out = torch::empty_like(c);
  const int64_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    times<scalar_t><<<(n + 255) / 256, 256>>>(c.const_data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), k, n);
  });
  return out;
}
""")  # fmt: skip
    assert scale.versions[-1].tier == "full"
    assert any("at::cuda::getCurrentCUDAStream()" in d.message for d in scale.versions[-1].kernel.diagnostics)
    x = gpu(1000)
    assert torch.equal(scale(x, 3.0), x * 3)
