// The kernels of kernels/normed.cpp for the dtypes that they are built for: each takes its parameters from the table of
// named values, and returns 0, or the position from 1 of a parameter whose value does not fit its type.
#include "support/body_math.h"
#include <cmath>
namespace normed_forward_cpu_text {
#include "kernels/normed.cpp"
}  // namespace normed_forward_cpu_text

// x float32
extern "C" int normed_forward_cpu_0_normed(const host_code_value* v) {
  ::normed_forward_cpu_text::normed<float>((const float*)v[0].p, (float*)v[4].p, (double*)v[5].p, (double)v[1].f, (int64_t)v[3].i, (int64_t)v[2].i);
  return 0;
}

// x float64
extern "C" int normed_forward_cpu_1_normed(const host_code_value* v) {
  ::normed_forward_cpu_text::normed<double>((const double*)v[0].p, (double*)v[4].p, (double*)v[5].p, (double)v[1].f, (int64_t)v[3].i, (int64_t)v[2].i);
  return 0;
}
