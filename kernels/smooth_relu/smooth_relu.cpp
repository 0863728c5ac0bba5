//! flags -O3 -march=native -fopenmp
//! n   = x.numel()
//! out = empty_like(x)
// Without a branch: the sign picks the slope
template <typename T>
void smooth_relu(const T* x, T* out, double alpha, int64_t n) {
  const decltype(T() * 1.0f) slope = alpha;  // float for half and bfloat16, as torch has it
  #pragma omp parallel for if (n > 1 << 15)
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] > T(0) ? x[i] : T(slope * x[i]);
}
