//! M, K = a.shape
//! _, N = b.shape
//! require b.shape[0] == K
//! tune BM = 64, 128
//! tune BN = 64, 128
//! tune BK = 16, 8
//! tune TM = 4, 8
//! tune TN = 4, 8
//! require 64 <= (BM // TM) * (BN // TN) <= 512
//! out = empty(M, N)
// A tile of BM x BN a block, TM x TN sums a thread, in float32; A lies transposed in shared memory
//! grid  = cdiv(N, BN), cdiv(M, BM)
//! block = (BM // TM) * (BN // TN)
template <typename T, int BM, int BN, int BK, int TM, int TN>
__global__ void matmul(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN), PAD = 4;
  __shared__ float sa[BK][BM + PAD], sb[BK][BN];
  const int first_row = blockIdx.y * BM, first_col = blockIdx.x * BN;
  const int ty = threadIdx.x / (BN / TN), tx = threadIdx.x % (BN / TN);
  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
      const int r = i / BK, k = i % BK;
      sa[k][r] = first_row + r < M && k0 + k < K ? float(a[(long long)(first_row + r) * K + k0 + k]) : 0.f;
    }
    for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
      const int k = i / BN, c = i % BN;
      sb[k][c] = k0 + k < K && first_col + c < N ? float(b[(long long)(k0 + k) * N + first_col + c]) : 0.f;
    }
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < BK; ++k) {
      float left[TM], right[TN];
      #pragma unroll
      for (int i = 0; i < TM; ++i) left[i] = sa[k][ty * TM + i];
      #pragma unroll
      for (int j = 0; j < TN; ++j) right[j] = sb[k][tx + j * (BN / TN)];
      #pragma unroll
      for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }
  #pragma unroll
  for (int i = 0; i < TM; ++i)
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int r = first_row + ty * TM + i, c = first_col + tx + j * (BN / TN);
      if (r < M && c < N) out[(long long)r * N + c] = T(sum[i][j]);
    }
}
