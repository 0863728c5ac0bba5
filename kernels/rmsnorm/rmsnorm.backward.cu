//! *_, cols = x.shape
//! rows  = prod(x.shape[:-1])
//! parts = max(1, min(rows, 2 * sm_count))
//! grad_x = empty(x.shape)
//! grad_w = empty_like(w)
//! part   = empty(parts, cols, dtype=float32)
// Each block takes rows in turn and sums its share of the gradient of w; a second kernel adds the shares in order

//! grid   = parts
//! block  = 256
//! shared = cols * 4
template <typename T, typename W>
__global__ void by_rows(const T* __restrict__ grad_y, const T* __restrict__ x, const W* __restrict__ w,
                        const float* __restrict__ rstd, T* __restrict__ grad_x, float* __restrict__ part, int rows,
                        int cols) {
  extern __shared__ float sums[];
  __shared__ float warps[8];
  for (int c = threadIdx.x; c < cols; c += 256) sums[c] = 0;
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *g = grad_y + (long long)r * cols, *from = x + (long long)r * cols;
    const float scale = rstd[r];
    float dot = 0;
    for (int c = threadIdx.x; c < cols; c += 256) dot += float(g[c]) * float(w[c]) * float(from[c]);
    for (int o = 16; o; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
    __syncthreads();  // the sums of the former row have been read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = dot;
    __syncthreads();
    dot = 0;
    for (int k = 0; k < 8; ++k) dot += warps[k];
    dot *= scale * scale * scale / cols;
    for (int c = threadIdx.x; c < cols; c += 256) {
      grad_x[(long long)r * cols + c] = T(float(g[c]) * float(w[c]) * scale - dot * float(from[c]));
      sums[c] += float(g[c]) * float(from[c]) * scale;
    }
  }
  for (int c = threadIdx.x; c < cols; c += 256) part[(long long)blockIdx.x * cols + c] = sums[c];
}

//! grid  = cdiv(cols, 256)
//! block = 256
template <typename W> __global__ void fold(const float* part, W* grad_w, int parts, int cols) {
  const int c = blockIdx.x * 256 + threadIdx.x;
  if (c >= cols) return;
  float s = 0;
  for (int p = 0; p < parts; ++p) s += part[(long long)p * cols + c];
  grad_w[c] = W(s);
}
