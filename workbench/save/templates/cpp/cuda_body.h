// What every CUDA kernel has without including it, and how kernels are launched.
#pragma once
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "cuda_launch.h"

#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#endif
using uint = unsigned int;

// One named value as the host code hands it over, and whether an integer fits a narrower C type.
union wb_value {
  int64_t i;
  double f;
  void* p;
};
template <typename T> constexpr bool wb_fits(int64_t v) {
  return static_cast<int64_t>(static_cast<T>(v)) == v && (v < 0) == (static_cast<T>(v) < static_cast<T>(0));
}

// Launches a kernel: 0, or the negative code of an error of CUDA's.
template <typename... P, typename... A> int wb_start(void (*kernel)(P...), const wb_launch* g, A... given) {
  const dim3 grid(g->grid[0], g->grid[1], g->grid[2]), block(g->block[0], g->block[1], g->block[2]);
  const auto stream = static_cast<cudaStream_t>(g->stream);
  if (g->shared > 48 * 1024) {
    const auto code = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(g->shared));
    if (code != cudaSuccess) return -static_cast<int>(code);
  }
  if (g->cluster[0]) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {g->cluster[0], g->cluster[1], g->cluster[2]};
    cudaLaunchConfig_t config = {grid, block, g->shared, stream, &cluster, 1};
    return -static_cast<int>(cudaLaunchKernelEx(&config, kernel, P(given)...));
  }
  kernel<<<grid, block, g->shared, stream>>>(given...);
  return -static_cast<int>(cudaGetLastError());
}
