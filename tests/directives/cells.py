"""The cells that the directive tests share: signatures and directives of whole jobs, bodies left out."""

from __future__ import annotations

from workbench import schema as schemas
from workbench.directives import Declaration, parse
from workbench.source import Source, functions

SCHEMAS = {
    "rmsnorm": schemas.parse("lab::rmsnorm(Tensor x, Tensor w, float eps=1e-6) -> Tensor", returns="y", saves="rstd"),
    "matmul": schemas.parse("lab::matmul(Tensor a, Tensor b) -> Tensor"),
    "kv_write_": schemas.parse(
        "lab::kv_write_(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor block_table, Tensor pos, "
        "Tensor? k_scale=None, Tensor? v_scale=None) -> ()"
    ),
    "quantise": schemas.parse("lab::quantise(Tensor x) -> (Tensor, Tensor)", returns=("q", "scale")),
    "dequantise": schemas.parse("lab::dequantise(Tensor q, Tensor scale) -> Tensor"),
    "topk": schemas.parse("lab::topk(Tensor x, SymInt k) -> (Tensor, Tensor)", returns=("values", "indices")),
    "f": schemas.parse(
        "lab::f(Tensor x, Tensor? b, SymInt k, float p, bool flag, float? scale=None, ScalarType? kind=None, "
        "int[] sizes=[]) -> Tensor"
    ),
}

CELLS = {
    "rmsnorm": """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! tune BLOCK = 256, 128, 512
//! y    = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
__device__ float warp_sum(float v) { return v; }
template <int BLOCK> __device__ float block_sum(float v) { return v; }
//! grid  = rows
//! block = BLOCK
template <typename T, typename W, int BLOCK>
__global__ void rmsnorm(const T* __restrict__ x, const W* __restrict__ w, T* __restrict__ y, float* __restrict__ rstd,
                        float eps, int cols) {}
""",
    "rmsnorm.backward": """\
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
__global__ void by_rows(const T* grad_y, const T* x, const W* w, const float* rstd, T* grad_x, float* part, int rows, int cols) {}
//! grid  = cdiv(cols, 256)
//! block = 256
template <typename W> __global__ void fold(const float* part, W* grad_w, int parts, int cols) {}
""",
    "matmul": """\
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
__global__ void partial(const T* a, const T* b, float* part, int M, int N, int K, int SPLIT) {}
//! grid  = cdiv(M * N, 256)
//! block = 256
template <typename T> __global__ void reduce(const float* part, T* out, int M, int N, int SPLIT) {}
""",
    "kv_write_": """\
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
                          long long skb, long long skp, long long skh, long long svb, long long svp, long long svh) {}
""",
    "quantise": """\
//! n     = x.numel()
//! q     = empty_like(x, dtype=int8)
//! scale = empty((), dtype=float32)
//! amax  = zeros(1, dtype=int32)
//! grid  = min(cdiv(n, 256), 4 * sm_count)
//! block = 256
template <typename T> __global__ void absmax(const T* x, int* amax, long long n) {}
//! grid  = max(1, min(cdiv(n, 256), 4 * sm_count))
//! block = 256
template <typename T> __global__ void round_to(const T* x, const int* amax, signed char* q, float* scale, long long n) {}
""",
    "dequantise": """\
//! n   = q.numel()
//! out = empty(q.shape, dtype=scale.dtype)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void dequantise(const signed char* q, const float* scale, float* out, long long n) {}
""",
    "topk": """\
//! cols = x.shape[-1]
//! rows = prod(x.shape[:-1])
//! require 0 <= k <= cols
//! values  = empty(*x.shape[:-1], k)
//! indices = empty(*x.shape[:-1], k, dtype=int64)
//! used    = zeros(rows, cols, dtype=uint8)
//! grid  = rows
//! block = 256
template <typename T>
__global__ void topk(const T* x, T* values, long long* indices, unsigned char* used, int cols, int k) {}
""",
}


def cell(name: str) -> Declaration:
    """One of CELLS, as a cell whose first line is the magic."""
    op, _, slot = name.partition(".")
    return declare(CELLS[name], op, entry=slot or "forward", language="cuda")


def declare(
    text: str, op: str = "f", *, entry: str = "forward", language: str = "cpp", bind: bool = True
) -> Declaration:
    found = functions(text, language, 2) if bind else ()
    return parse(Source(text, language, first_line=2), SCHEMAS[op], entry=entry, functions=found)


def lines(*directives: str) -> Declaration:
    """A declaration of `f` from directives alone, bound to no function: `x` is line 2, and so on."""
    return declare("\n".join(f"//! {d}" for d in directives), bind=False)
