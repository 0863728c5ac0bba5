//! flags -O3 -march=native -fopenmp
//! n = x.numel()
//! require y.shape == x.shape
// Straight through both; the compiler makes vectors of it
template <typename T>
void add_inplace_(T* x, const T* y, double alpha, int64_t n) {
  const float scale = float(alpha);
  #pragma omp parallel for if (n > 1 << 15)
  for (int64_t i = 0; i < n; ++i) x[i] = T(float(x[i]) + scale * float(y[i]));
}
