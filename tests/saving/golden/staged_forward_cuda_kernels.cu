// The kernels of kernels/staged.cu for the dtypes that they are built for. Each is launched with parameters from the table of
// named values; 0, or the position from 1 of a parameter whose value does not fit, or the negative code of an error.
#include "support/cuda_body.h"
namespace staged_forward_cuda_text {
#include "kernels/staged.cu"
}  // namespace staged_forward_cuda_text

// x float32
extern "C" int staged_forward_cuda_0_staged(const host_code_value* v, host_code_launch* g) {
  static host_code_allowed allowed;
  return host_code_start(::staged_forward_cuda_text::staged, allowed, g, (const float*)v[0].p, (float*)v[3].p, (float)v[1].f, (long long)v[2].i);
}
