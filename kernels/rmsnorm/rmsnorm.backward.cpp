//! flags -O3 -march=native -fopenmp
//! *_, cols = x.shape
//! rows  = prod(x.shape[:-1])
//! parts = min(max(rows, 1), 64)
//! grad_x = empty(x.shape)
//! grad_w = empty_like(w)
//! part   = zeros(parts, cols, dtype=float32)
// Each part sums the gradient of w over its own rows; the parts are added at the end, always in the same order
template <typename T, typename W>
void backward(const T* grad_y, const T* x, const W* w, const float* rstd, T* grad_x, W* grad_w, float* part,
              int64_t rows, int64_t cols, int64_t parts) {
  #pragma omp parallel for if (rows * cols > 1 << 15)
  for (int64_t p = 0; p < parts; ++p) {
    float* sums = part + p * cols;
    for (int64_t r = p; r < rows; r += parts) {
      const T *g = grad_y + r * cols, *from = x + r * cols;
      const float scale = rstd[r];
      float dot = 0;
      for (int64_t c = 0; c < cols; ++c) dot += float(g[c]) * float(w[c]) * float(from[c]);
      dot *= scale * scale * scale / cols;
      for (int64_t c = 0; c < cols; ++c) {
        grad_x[r * cols + c] = T(float(g[c]) * float(w[c]) * scale - dot * float(from[c]));
        sums[c] += float(g[c]) * float(from[c]) * scale;
      }
    }
  }
  for (int64_t c = 0; c < cols; ++c) {
    float sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += part[p * cols + c];
    grad_w[c] = W(sum);
  }
}
