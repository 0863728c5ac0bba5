//! flags -O3 -march=native -fopenmp
// Eight elements at a time where the CPU has AVX2 and FMA; threads share each tensor
#include <cmath>
#include <vector>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace {

struct Step {
  float rate, b2, d1, d2, eps, c2;  // rate: lr over what m still lacks after `step` steps; c2: what v lacks; d: 1 - b
};

inline void one(float* p, float* a, float* s, float g, const Step& k) {
  *a += k.d1 * (g - *a);
  *s = k.b2 * *s + k.d2 * g * g;
  *p -= k.rate * *a / (std::sqrt(*s / k.c2) + k.eps);
}

#if defined(__AVX2__) && defined(__FMA__)
constexpr int64_t WIDTH = 8;
inline void several(float* p, float* a, float* s, const float* g, const Step& k) {
  const __m256 G = _mm256_loadu_ps(g);
  __m256 A = _mm256_loadu_ps(a), S = _mm256_loadu_ps(s);
  A = _mm256_fmadd_ps(_mm256_set1_ps(k.d1), _mm256_sub_ps(G, A), A);
  S = _mm256_fmadd_ps(_mm256_set1_ps(k.d2), _mm256_mul_ps(G, G), _mm256_mul_ps(_mm256_set1_ps(k.b2), S));
  const __m256 d = _mm256_add_ps(_mm256_sqrt_ps(_mm256_div_ps(S, _mm256_set1_ps(k.c2))), _mm256_set1_ps(k.eps));
  const __m256 u = _mm256_div_ps(_mm256_mul_ps(_mm256_set1_ps(k.rate), A), d);
  _mm256_storeu_ps(a, A);
  _mm256_storeu_ps(s, S);
  _mm256_storeu_ps(p, _mm256_sub_ps(_mm256_loadu_ps(p), u));
}
#else
constexpr int64_t WIDTH = 1;
inline void several(float* p, float* a, float* s, const float* g, const Step& k) { one(p, a, s, *g, k); }
#endif

}  // namespace

void adam_(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> m, std::vector<Tensor> v,
           float lr, double b1, double b2, float eps, int64_t step) {
  const Step k{float(lr / (1 - std::pow(b1, step))), float(b2), float(1 - b1), float(1 - b2), eps, float(1 - std::pow(b2, step))};
  for (size_t i = 0; i < params.size(); ++i) {
    float *p = params[i].mutable_data_ptr<float>(), *a = m[i].mutable_data_ptr<float>(), *s = v[i].mutable_data_ptr<float>();
    const float* g = grads[i].const_data_ptr<float>();
    const int64_t n = params[i].numel(), most = n - n % WIDTH;
    STD_TORCH_CHECK(grads[i].numel() == n && m[i].numel() == n && v[i].numel() == n, "adam_: tensor ", i, " has other sizes in its list");
    #pragma omp parallel for schedule(static) if (n > 1 << 14)
    for (int64_t j = 0; j < most; j += WIDTH) several(p + j, a + j, s + j, g + j, k);
    for (int64_t j = most; j < n; ++j) one(p + j, a + j, s + j, g[j], k);
  }
}
