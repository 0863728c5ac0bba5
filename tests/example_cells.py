"""The cells of the ops in test_examples.py and test_example_kernels.py, word for word as a user types them."""

CELLS = {}

CELLS["rmsnorm"] = """\
@wb.op("lab::rmsnorm", returns=("y",), saves=("rstd",))
def rmsnorm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    xf = x.float()
    return (xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w

@rmsnorm.cases(dtypes=(torch.float32, torch.float16, torch.bfloat16))       # what t makes without a dtype is made in each
def _(t):
    yield t(4, 128), t(128)
    yield wb.case("odd", t(5, 123), t(123))
    yield wb.case("llama", t(8192, 4096), t(4096), bench=True)
"""

CELLS["matmul"] = """\
@wb.op("lab::matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b

@matmul.cases
def _(t):
    yield t(65, 130), t(130, 33)
    yield wb.case("decode", t(16, 8192), t(8192, 1024), bench=True)
"""

CELLS["flash"] = """\
@wb.op("lab::flash", returns=("out", "lse"))
def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> tuple[Tensor, Tensor]:
    s = (q @ k.mT).float() * (scale or q.size(-1) ** -0.5)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -float("inf"))
    return s.softmax(-1).to(v.dtype) @ v, s.logsumexp(-1).detach()        # detached: lse takes no gradient

@flash.cases
def _(t):
    yield t(1, 2, 100, 32), t(1, 2, 100, 32), t(1, 2, 100, 32)
    yield wb.case("causal", t(1, 2, 100, 32), t(1, 2, 100, 32), t(1, 2, 100, 32), causal=True)
    yield wb.case("4k", t(4, 16, 4096, 128), t(4, 16, 4096, 128), t(4, 16, 4096, 128), causal=True, bench=True)
"""

CELLS["kv_write_"] = """\
@wb.op("lab::kv_write_", mutates=("k_cache", "v_cache"))
def kv_write_(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, pos: Tensor,
              k_scale: Tensor | None = None, v_scale: Tensor | None = None) -> None:
    page = k_cache.shape[1]
    blk = block_table.gather(1, (pos // page).long()[:, None])[:, 0].long()
    off = (pos % page).long()
    k_cache[blk, off] = k if k_scale is None else k / k_scale
    v_cache[blk, off] = v if v_scale is None else v / v_scale

@kv_write_.cases
def _(t):                                            # torch's generator is seeded here, so randperm is fine
    table = torch.randperm(32)[:24].view(3, 8).to(torch.int32)
    kv = t(32, 2, 16, 4, 64)                         # the caches are views of one base
    pos = t(3, dtype=torch.int32, low=0, high=128)
    yield t(3, 4, 64), t(3, 4, 64), kv[:, 0], kv[:, 1], table, pos
    yield wb.case("scaled", t(3, 4, 64), t(3, 4, 64), kv[:, 0], kv[:, 1], table, pos, t(low=.5, high=2), t(low=.5, high=2))
"""

CELLS["adam_"] = """\
@wb.op("lab::adam_", mutates=("params", "m", "v"))
def adam_(params: list[Tensor], grads: list[Tensor], m: list[Tensor], v: list[Tensor],
          lr: float, b1: float, b2: float, eps: float, step: int) -> None:
    for p, g, a, b in zip(params, grads, m, v):
        a.lerp_(g, 1 - b1)
        b.mul_(b2).addcmul_(g, g, value=1 - b2)
        p.addcdiv_(a / (1 - b1 ** step), (b / (1 - b2 ** step)).sqrt() + eps, value=-lr)

@adam_.cases
def _(t):
    shapes = (3, 5), (128,), (0,), (17, 33)
    four = [[t(*s, low=0) for s in shapes] for _ in range(4)]
    yield *four, 1e-3, .9, .999, 1e-8, 1
    yield wb.case("big", *[[t(4096, 1024, low=0) for _ in range(8)] for _ in range(4)], 1e-3, .9, .999, 1e-8, 7, bench=True)
"""

CELLS["quantise"] = """\
@wb.op("lab::quantise", returns=("q", "scale"))
def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax().float().clamp(min=1e-8) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale

@quantise.compare                              # a value half way between two steps may round either way
def _(x, q, scale):
    return ((q * scale - x).abs() / scale).clamp(min=0.5), scale

@wb.op("lab::dequantise")
def dequantise(q: Tensor, scale: Tensor) -> Tensor:
    return q * scale
"""

CELLS["topk"] = """\
@wb.op("lab::topk", returns=("values", "indices"))
def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return torch.topk(x, k)

@topk.compare
def _(x, k, values, indices):                  # ties may come out in any order
    return values, x.gather(-1, indices)

@topk.cases
def _(t):
    yield t(4, 128), 5
    yield wb.case("all", t(3, 7), 7)
    yield wb.case("vocab", t(64, 32000), 50, bench=True)
"""

CELLS["dropout"] = """\
@wb.op("lab::dropout")
def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    g = torch.Generator(x.device).manual_seed(seed)
    return x * (torch.rand(x.shape, generator=g, device=x.device) >= p) / (1 - p)

@dropout.compare                               # masks of two generators differ: compare what must not
def _(x, p, seed, y):
    return torch.where(y == 0, x / (1 - p), y), ((y == 0).double().mean() - p).abs() < 0.05
"""

CUDA = {}

CUDA["rmsnorm"] = """\
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
"""

CUDA["rmsnorm.backward"] = """\
//! *_, cols = x.shape
//! rows  = prod(x.shape[:-1])
//! parts = min(rows, 2 * sm_count)
//! grad_x = empty(x.shape)
//! grad_w = empty_like(w)
//! part   = empty(parts, cols, dtype=float32)       // a tensor that is no gradient: workspace

//! grid   = parts
//! block  = 256
//! shared = cols * 4
template <typename T, typename W>
__global__ void by_rows(const T* grad_y, const T* x, const W* w, const float* rstd, T* grad_x, float* part, int rows, int cols) {
  extern __shared__ float acc[];
  __shared__ float s[8];
  for (int c = threadIdx.x; c < cols; c += 256) acc[c] = 0;
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *g = grad_y + (long long)r * cols, *xr = x + (long long)r * cols;
    float i = rstd[r], d = 0;
    for (int c = threadIdx.x; c < cols; c += 256) d += float(g[c]) * float(w[c]) * float(xr[c]);
    for (int o = 16; o; o >>= 1) d += __shfl_xor_sync(~0u, d, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = d;
    __syncthreads();
    d = 0; for (int k = 0; k < 8; ++k) d += s[k];
    d *= i * i * i / cols;
    for (int c = threadIdx.x; c < cols; c += 256) {
      grad_x[(long long)r * cols + c] = T(float(g[c]) * float(w[c]) * i - d * float(xr[c]));
      acc[c] += float(g[c]) * float(xr[c]) * i;
    }
  }
  for (int c = threadIdx.x; c < cols; c += 256) part[(long long)blockIdx.x * cols + c] = acc[c];
}
//! grid  = cdiv(cols, 256)
//! block = 256
template <typename W> __global__ void fold(const float* part, W* grad_w, int parts, int cols) {
  int c = blockIdx.x * 256 + threadIdx.x;
  if (c >= cols) return;
  float s = 0; for (int p = 0; p < parts; ++p) s += part[(long long)p * cols + c];
  grad_w[c] = W(s);
}
"""

CUDA["matmul"] = """\
//! M, K = a.shape
//! _, N = b.shape
//! require b.shape[0] == K
//! tune SPLIT = 1, 2, 4, 8, 16
//! tune TILE = 16, 32
//! require TILE * TILE <= 1024
//! out  = empty(M, N)
//! part = empty(SPLIT, M, N, dtype=float32)

//! grid  = cdiv(N, TILE), cdiv(M, TILE), SPLIT
//! block = TILE, TILE
template <typename T, int TILE>
__global__ void partial(const T* a, const T* b, float* part, int M, int N, int K, int SPLIT) {
  __shared__ float sa[TILE][TILE + 1], sb[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  int per = (K + SPLIT - 1) / SPLIT, k0 = blockIdx.z * per, k1 = min(K, k0 + per);
  float acc = 0;
  for (int k = k0; k < k1; k += TILE) {
    int ka = k + threadIdx.x, kb = k + threadIdx.y;
    sa[threadIdx.y][threadIdx.x] = row < M && ka < k1 ? float(a[(long long)row * K + ka]) : 0.f;
    sb[threadIdx.y][threadIdx.x] = col < N && kb < k1 ? float(b[(long long)kb * N + col]) : 0.f;
    __syncthreads();
    for (int j = 0; j < TILE; ++j) acc += sa[threadIdx.y][j] * sb[j][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) part[((long long)blockIdx.z * M + row) * N + col] = acc;
}
//! grid  = cdiv(M * N, 256)
//! block = 256
template <typename T> __global__ void reduce(const float* part, T* out, int M, int N, int SPLIT) {
  long long i = blockIdx.x * 256ll + threadIdx.x, n = (long long)M * N;
  if (i >= n) return;
  float s = 0; for (int p = 0; p < SPLIT; ++p) s += part[p * n + i];
  out[i] = T(s);
}
"""

CUDA["kv_write_"] = """\
//! B, H, D = k.shape
//! page = k_cache.shape[1]
//! pages = block_table.shape[1]
//! require v.shape == k.shape
//! require k_cache.stride(-1) == 1 and v_cache.stride(-1) == 1
//! skb, skp, skh, _ = k_cache.stride()
//! svb, svp, svh, _ = v_cache.stride()
//! grid  = B, H
//! block = min(D, 256)
template <typename T>
__global__ void kv_write_(const T* k, const T* v, T* k_cache, T* v_cache, const int* block_table, const int* pos,
                          const T* k_scale, const T* v_scale, int H, int D, int page, int pages,
                          long long skb, long long skp, long long skh, long long svb, long long svp, long long svh) {
  int b = blockIdx.x, h = blockIdx.y, p = pos[b];
  if (p < 0) return;
  long long blk = block_table[b * pages + p / page], off = p % page;
  float ks = k_scale ? 1.f / float(*k_scale) : 1.f, vs = v_scale ? 1.f / float(*v_scale) : 1.f;   // None is nullptr
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    long long i = ((long long)b * H + h) * D + d;
    k_cache[blk * skb + off * skp + h * skh + d] = T(float(k[i]) * ks);
    v_cache[blk * svb + off * svp + h * svh + d] = T(float(v[i]) * vs);
  }
}
"""

CUDA["quantise"] = """\
//! n     = x.numel()
//! q     = empty_like(x, dtype=int8)
//! scale = empty((), dtype=float32)
//! amax  = zeros(1, dtype=int32)
//! grid  = min(cdiv(n, 256), 4 * sm_count)
//! block = 256
template <typename T> __global__ void absmax(const T* x, int* amax, long long n) {
  float m = 0;
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) m = fmaxf(m, fabsf(float(x[i])));
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (threadIdx.x % 32 == 0) atomicMax(amax, __float_as_int(m));
}
//! grid  = max(1, min(cdiv(n, 256), 4 * sm_count))
//! block = 256
template <typename T> __global__ void round_to(const T* x, const int* amax, signed char* q, float* scale, long long n) {
  float s = fmaxf(__int_as_float(*amax), 1e-8f) / 127.f;
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale = s;
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    q[i] = (signed char)fminf(127.f, fmaxf(-128.f, rintf(float(x[i]) / s)));
}
"""

CUDA["dequantise"] = """\
//! n   = q.numel()
//! out = empty(q.shape, dtype=scale.dtype)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void dequantise(const signed char* q, const float* scale, float* out, long long n) {
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = q[i] * *scale;
}
"""

CUDA["topk"] = """\
//! cols = x.shape[-1]
//! rows = prod(x.shape[:-1])
//! require 0 <= k <= cols
//! values  = empty(*x.shape[:-1], k)
//! indices = empty(*x.shape[:-1], k, dtype=int64)
//! used    = zeros(rows, cols, dtype=uint8)
//! grid  = rows
//! block = 256
template <typename T>
__global__ void topk(const T* x, T* values, long long* indices, unsigned char* used, int cols, int k) {
  __shared__ float sv[256]; __shared__ int si[256];
  x += (long long)blockIdx.x * cols; used += (long long)blockIdx.x * cols;
  for (int j = 0; j < k; ++j) {
    float best = -3.4e38f; int at = -1;
    for (int c = threadIdx.x; c < cols; c += 256)
      if (!used[c] && (at < 0 || float(x[c]) > best)) { best = float(x[c]); at = c; }
    sv[threadIdx.x] = best; si[threadIdx.x] = at;
    __syncthreads();
    for (int o = 128; o; o >>= 1) {
      if (threadIdx.x < o && si[threadIdx.x + o] >= 0 && (si[threadIdx.x] < 0 || sv[threadIdx.x + o] > sv[threadIdx.x]))
        { sv[threadIdx.x] = sv[threadIdx.x + o]; si[threadIdx.x] = si[threadIdx.x + o]; }
      __syncthreads();
    }
    if (threadIdx.x == 0) { int c = si[0]; values[(long long)blockIdx.x * k + j] = x[c]; indices[(long long)blockIdx.x * k + j] = c; used[c] = 1; }
    __syncthreads();
  }
}
"""
