//! flags -O3 -march=native -fopenmp
//! n      = x.numel()
//! grad_x = empty_like(x)
// The slope that the forward took
template <typename T>
void backward(const T* grad_out, const T* x, T* grad_x, double alpha, int64_t n) {
  const decltype(T() * 1.0f) slope = alpha;  // float for half and bfloat16, as torch has it
  #pragma omp parallel for if (n > 1 << 15)
  for (int64_t i = 0; i < n; ++i) grad_x[i] = x[i] > T(0) ? grad_out[i] : T(slope * grad_out[i]);
}
