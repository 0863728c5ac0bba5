"""The texts that the GPU benchmarks run: one function in CUDA, for the host tier, in Triton, and for `load_inline`.

Braces are for `str.format`: `edit` is a number that makes each text a new one and changes no result.
"""

RAW = """\
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
template <typename T> __global__ void {name}(const T* x, T* out, float alpha, long long n) {{
  long long i = blockIdx.x * 256ll + threadIdx.x;
  const float edit = {edit}.0f;
  if (i < n) out[i] = T(float(x[i]) > 0 ? float(x[i]) : alpha * float(x[i]) + 0 * edit);
}}
"""
RAW_GROUPS = """\
#include <cooperative_groups.h>
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void {name}(const float* x, float* out, float alpha, long long n) {{
  auto block = cooperative_groups::this_thread_block();
  long long i = blockIdx.x * 256ll + block.thread_rank();
  const float edit = {edit}.0f;
  if (i < n) out[i] = x[i] > 0 ? x[i] : alpha * x[i] + 0 * edit;
}}
"""
HOST = """\
__global__ void leaky_kernel(const float* x, float* out, float alpha, long long n) {{
  long long i = blockIdx.x * 256ll + threadIdx.x;
  const float edit = {edit}.0f;
  if (i < n) out[i] = x[i] > 0 ? x[i] : alpha * x[i] + 0 * edit;
}}
Tensor {name}(const Tensor& x, float alpha) {{
  Tensor in = torch::stable::contiguous(x), out = torch::stable::empty_like(in);
  const long long n = in.numel(), blocks = (n + 255) / 256 + 0 * {host_edit};
  const float* p = in.const_data_ptr<float>();
  if (n) leaky_kernel<<<blocks, 256, 0, wb::current_stream()>>>(p, out.mutable_data_ptr<float>(), alpha, n);
  return out;
}}
"""
TRITON = """\
EDIT = tl.constexpr({edit})

@triton.jit
def leaky_kernel(x, out, alpha, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(v > 0, v, alpha * v + 0 * EDIT), mask=i < n)


def {name}(x, alpha=0.5):
    x = x.contiguous()
    out = torch.empty_like(x)
    leaky_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, alpha, x.numel(), BLOCK=1024)
    return out
"""
TORCH_CUDA = """\
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void leaky_kernel(const float* x, float* out, float alpha, long long n) {{
  long long i = blockIdx.x * 256ll + threadIdx.x;
  const float edit = {edit}.0f;
  if (i < n) out[i] = x[i] > 0 ? x[i] : alpha * x[i] + 0 * edit;
}}
torch::Tensor leaky(torch::Tensor x, double alpha) {{
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const long long n = in.numel();
  auto stream = c10::cuda::getCurrentCUDAStream();
  leaky_kernel<<<(n + 255) / 256, 256, 0, stream>>>(in.data_ptr<float>(), out.data_ptr<float>(), alpha, n);
  return out;
}}
"""
TORCH_DECLARED = "#include <torch/extension.h>\ntorch::Tensor leaky(torch::Tensor x, double alpha);"
