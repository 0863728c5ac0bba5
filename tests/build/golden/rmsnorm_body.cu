#include "wb_cuda.h"
#include <cuda_bf16.h>
#line 2 "a \"quoted\"\\name.cu"
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! tune BLOCK = 256, 128, 512
//! y    = empty(x.shape)
//! rstd = empty(rows, dtype=float32)

__device__ float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}
template <int BLOCK> __device__ float block_sum(float v) {
  __shared__ float s[BLOCK / 32];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x < BLOCK / 32 ? s[threadIdx.x] : 0.f;
  if (threadIdx.x < 32) v = warp_sum(v);
  if (threadIdx.x == 0) s[0] = v;
  __syncthreads();
  return s[0];
}
//! grid  = rows
//! block = BLOCK
template <typename T, typename W, int BLOCK>
__global__ void rmsnorm(const T* __restrict__ x, const W* __restrict__ w, T* __restrict__ y, float* __restrict__ rstd,
                        float eps, int cols) {
  x += (long long)blockIdx.x * cols; y += (long long)blockIdx.x * cols;
  float s = 0;
  for (int c = threadIdx.x; c < cols; c += BLOCK) { float v = float(x[c]); s += v * v; }
  float r = rsqrtf(block_sum<BLOCK>(s) / cols + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  for (int c = threadIdx.x; c < cols; c += BLOCK) y[c] = T(float(T(float(x[c]) * r)) * float(w[c]));
}
