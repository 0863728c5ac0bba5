//! flags -O3 -fopenmp
//! cols = x.shape[-1]
//! rows = prod(x.shape[:-1])
//! require 0 <= k <= cols
//! values  = empty(*x.shape[:-1], k)
//! indices = empty(*x.shape[:-1], k, dtype=int64)
// A heap of the k best so far a row; most elements are turned away by one comparison
#include <algorithm>
#include <vector>

template <typename T>
void topk_with_idx(const T* x, T* values, int64_t* indices, int64_t rows, int64_t cols, int64_t k) {
  #pragma omp parallel for if (rows * cols > 1 << 15)
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * cols;
    auto larger = [row](int64_t a, int64_t b) {  // NaN is larger than any number; equal ones stand in their order
      const float p = row[a], q = row[b];
      const bool is = p > q || (p != p && q == q), isnt = q > p || (q != q && p == p);
      return is || (!isnt && a < b);
    };
    std::vector<int64_t> best(k);
    for (int64_t c = 0; c < k; ++c) best[c] = c;
    std::make_heap(best.begin(), best.end(), larger);
    for (int64_t c = k; c < cols && k; ++c) {
      if (!larger(c, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), larger);
      best.back() = c;
      std::push_heap(best.begin(), best.end(), larger);
    }
    std::sort(best.begin(), best.end(), larger);
    for (int64_t j = 0; j < k; ++j) {
      values[r * k + j] = row[best[j]];
      indices[r * k + j] = best[j];
    }
  }
}
