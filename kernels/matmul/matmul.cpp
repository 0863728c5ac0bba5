//! flags -O3 -march=native -fopenmp
//! M, K = a.shape
//! _, N = b.shape
//! require b.shape[0] == K
//! tune MR = 6, 8, 12
//! tune NV = 2, 1
//! tune KC = 256, 512
//! tune MC = 96, 192
//! out    = empty(M, N)
//! sums   = empty(M, N, dtype=float32)
//! packed = empty(min(K, KC), cdiv(N, 32) * 32, dtype=float32)
// Blocks of KC columns of A against packed panels of B, MR x NV vectors of sums in registers (Goto and van de Geijn, 2008)
#include <algorithm>
#include <type_traits>
#include <vector>

#ifdef __AVX512F__
constexpr int W = 16;  // floats in a vector
#else
constexpr int W = 8;
#endif
typedef float Vector __attribute__((vector_size(W * sizeof(float)), aligned(sizeof(float))));

// sums[MR][NV * W] of one panel of A (MR values for each k) and one of B (NV * W for each k).
template <int MR, int NV>
static inline void micro(const float* a, const float* b, int64_t depth, float* to, int64_t stride, bool add) {
  Vector sum[MR][NV] = {};
  for (int64_t k = 0; k < depth; ++k, a += MR, b += NV * W) {
    Vector row[NV];
    #pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) row[j] = *reinterpret_cast<const Vector*>(b + j * W);
    #pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
      #pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) sum[i][j] += a[i] * row[j];
  }
  #pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
    #pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      Vector& place = *reinterpret_cast<Vector*>(to + i * stride + j * W);
      place = add ? place + sum[i][j] : sum[i][j];
    }
}

// A tile at the border: into memory of its own, then the part that there is.
template <int MR, int NV>
static void border(const float* a, const float* b, int64_t depth, float* to, int64_t stride, bool add, int64_t rows, int64_t cols) {
  float tile[MR * NV * W];
  micro<MR, NV>(a, b, depth, tile, NV * W, false);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) to[i * stride + j] = (add ? to[i * stride + j] : 0.0f) + tile[i * NV * W + j];
}

template <int MR, typename T>
static void pack_a(const T* a, int64_t K, int64_t rows, int64_t depth, float* to) {
  for (int64_t i = 0; i < rows; i += MR, to += MR * depth)
    for (int64_t r = 0; r < MR; ++r)
      for (int64_t k = 0; k < depth; ++k) to[k * MR + r] = i + r < rows ? float(a[(i + r) * K + k]) : 0.0f;
}

template <typename T>
static void pack_b(const T* b, int64_t N, int64_t cols, int64_t depth, int NR, float* to) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < NR; ++j) to[k * NR + j] = j < cols ? float(b[k * N + j]) : 0.0f;
}

template <typename T, int MR, int NV>
void matmul(const T* a, const T* b, T* out, float* sums, float* packed, int64_t M, int64_t N, int64_t K) {
  constexpr int64_t NR = NV * W;
  float* c = sums;
  if constexpr (std::is_same_v<T, float>) c = out;
  const int64_t panels = (N + NR - 1) / NR;
  #pragma omp parallel if (M * N * K > 1 << 16)
  {
    static thread_local std::vector<float> block;
    block.resize((MC / MR + 1) * MR * KC);
    for (int64_t k0 = 0; k0 < K; k0 += KC) {
      const int64_t depth = std::min<int64_t>(KC, K - k0);
      #pragma omp for
      for (int64_t p = 0; p < panels; ++p)
        pack_b(b + k0 * N + p * NR, N, std::min(NR, N - p * NR), depth, NR, packed + p * NR * depth);
      #pragma omp for schedule(dynamic)
      for (int64_t i0 = 0; i0 < M; i0 += MC) {
        const int64_t rows = std::min<int64_t>(MC, M - i0);
        pack_a<MR>(a + i0 * K + k0, K, rows, depth, block.data());
        for (int64_t p = 0; p < panels; ++p)
          for (int64_t i = 0; i < rows; i += MR) {
            const float *ap = block.data() + i * depth, *bp = packed + p * NR * depth;
            float* to = c + (i0 + i) * N + p * NR;
            if (i + MR <= rows && (p + 1) * NR <= N) micro<MR, NV>(ap, bp, depth, to, N, k0 > 0);
            else border<MR, NV>(ap, bp, depth, to, N, k0 > 0, std::min<int64_t>(MR, rows - i), std::min(NR, N - p * NR));
          }
      }
    }
    if (!std::is_same_v<T, float>) {
      #pragma omp for
      for (int64_t i = 0; i < M * N; ++i) out[i] = T(sums[i]);
    }
  }
  if (K == 0) std::fill(out, out + M * N, T(0));
}
