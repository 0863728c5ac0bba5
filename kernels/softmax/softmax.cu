//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! tune BLOCK = 256, 128, 512, 1024
//! y = empty(x.shape)
// Online softmax (Milakov and Gimelshein, 2018): the largest value and the sum come from one pass over the row
template <int BLOCK> __device__ void combine(float& m, float& s) {
  __shared__ float ms[BLOCK / 32], ss[BLOCK / 32];
  for (int o = 16; o; o >>= 1) {
    const float om = __shfl_xor_sync(~0u, m, o), os = __shfl_xor_sync(~0u, s, o), top = fmaxf(m, om);
    if (top != -INFINITY) s = s * __expf(m - top) + os * __expf(om - top);
    m = top;
  }
  if (threadIdx.x % 32 == 0) ms[threadIdx.x / 32] = m, ss[threadIdx.x / 32] = s;
  __syncthreads();
  float top = -INFINITY, sum = 0;
  for (int k = 0; k < BLOCK / 32; ++k) top = fmaxf(top, ms[k]);
  for (int k = 0; k < BLOCK / 32; ++k) sum += ms[k] == -INFINITY ? ss[k] : ss[k] * __expf(ms[k] - top);
  m = top, s = sum;
}

//! grid  = rows
//! block = BLOCK
template <typename T, int BLOCK>
__global__ void softmax(const T* __restrict__ x, T* __restrict__ y, float k, int cols) {
  x += (long long)blockIdx.x * cols, y += (long long)blockIdx.x * cols;
  float m = -INFINITY, s = 0;
  for (int c = threadIdx.x; c < cols; c += BLOCK) {
    const float v = float(x[c]) * k;
    if (v > m) {
      s = s * __expf(m - v) + 1;
      m = v;
    } else if (v != -INFINITY) {
      s += __expf(v - m);
    }
  }
  combine<BLOCK>(m, s);
  const float r = 1.f / s;
  for (int c = threadIdx.x; c < cols; c += BLOCK) y[c] = T(__expf(float(x[c]) * k - m) * r);
}
