//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! tune BLOCK = 512, 256, 128, 1024
//! y    = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
// One block a row; 16 bytes a load where the row allows it, and what was loaded stays in registers for the second pass
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T v[N]; };

__device__ bool aligned(const void* p) { return reinterpret_cast<size_t>(p) % 16 == 0; }

template <int BLOCK> __device__ float block_sum(float v) {
  __shared__ float part[BLOCK / 32];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (int k = 0; k < BLOCK / 32; ++k) v += part[k];
  return v;
}

//! grid  = rows
//! block = BLOCK
template <typename T, typename W, int BLOCK>
__global__ void rmsnorm(const T* __restrict__ x, const W* __restrict__ w, T* __restrict__ y, float* __restrict__ rstd,
                        float eps, int cols) {
  constexpr int N = 16 / sizeof(T), KEPT = 2;  // elements a load, loads a thread keeps
  x += (long long)blockIdx.x * cols, y += (long long)blockIdx.x * cols;
  float s = 0;
  if (cols % N || !aligned(x) || !aligned(y) || !aligned(w)) {
    for (int c = threadIdx.x; c < cols; c += BLOCK) s += float(x[c]) * float(x[c]);
    const float r = rsqrtf(block_sum<BLOCK>(s) / cols + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = r;
    for (int c = threadIdx.x; c < cols; c += BLOCK) y[c] = T(float(T(float(x[c]) * r)) * float(w[c]));
    return;
  }
  using In = Pack<T, N>;
  using Weight = Pack<W, N>;
  const int packs = cols / N;
  const In* from = reinterpret_cast<const In*>(x);
  const Weight* weights = reinterpret_cast<const Weight*>(w);
  In* to = reinterpret_cast<In*>(y);
  In kept[KEPT];
  auto squares = [&](const In& p) {
#pragma unroll
    for (int i = 0; i < N; ++i) s += float(p.v[i]) * float(p.v[i]);
  };
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int c = threadIdx.x + k * BLOCK;
    if (c < packs) squares(kept[k] = from[c]);
  }
  for (int c = threadIdx.x + KEPT * BLOCK; c < packs; c += BLOCK) squares(from[c]);
  const float r = rsqrtf(block_sum<BLOCK>(s) / cols + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  auto scaled = [&](In p, int c) {
    const Weight f = weights[c];
#pragma unroll
    for (int i = 0; i < N; ++i) p.v[i] = T(float(T(float(p.v[i]) * r)) * float(f.v[i]));
    to[c] = p;
  };
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int c = threadIdx.x + k * BLOCK;
    if (c < packs) scaled(kept[k], c);
  }
  for (int c = threadIdx.x + KEPT * BLOCK; c < packs; c += BLOCK) scaled(from[c], c);
}
