#include "wb_body.h"
#include "wb_bfloat16.h"
constexpr int UNROLL = 4;
#line 2 "a \"quoted\"\\name.cpp"
//! cols = x.shape[-1]
//! tune BLOCK = 64, 128
//! tune UNROLL = 4
//! half_block = BLOCK // 2
//! out = empty_like(x)
//! stat = empty(cols, dtype=float64)
namespace mine {
template <typename T, typename W, int BLOCK, int half_block>
void norm(const T* __restrict__ x, const W* w, T* out, double* stat, float eps, int cols) {}
}
#line 10 "a \"quoted\"\\name.cpp"
extern "C" __attribute__((visibility("default"))) int wb_call_norm(const wb_value* v) {
  if (!wb_fits<int>(v[3].i)) return 6;
#line 10 "a \"quoted\"\\name.cpp"
  ::mine::norm<bfloat16, float, 64, 32>((const bfloat16*)v[0].p, (const float*)v[1].p, (bfloat16*)v[7].p, (double*)v[8].p, (float)v[2].f, (int)v[3].i);
  return 0;
}
