// What every CUDA kernel has without including it, and how kernels are launched.
#pragma once
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <atomic>
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

// How many bytes of dynamic shared memory a kernel may have on each GPU, as far as it was asked for: one for each kernel.
struct wb_allowed {
  std::atomic<int64_t> bytes[WB_GPUS];
};

// Lets a kernel have the dynamic shared memory that it asks for, on this GPU from now on. A block has 48 KB without
// asking, of which the kernel's own __shared__ arrays take their part.
inline cudaError_t wb_allow(const void* kernel, wb_allowed& allowed, wb_launch* g) {
  cudaFuncAttributes told = {};
  cudaError_t code = cudaFuncGetAttributes(&told, kernel);
  g->own = static_cast<int32_t>(told.sharedSizeBytes);
  int64_t bytes = 48 * 1024 - int64_t(g->own);
  if (code == cudaSuccess && int64_t(g->shared) > bytes) {
    int most = 0;
    code = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, g->gpu);
    bytes = most - int64_t(g->own);
    if (code == cudaSuccess && int64_t(g->shared) > bytes) return cudaErrorInvalidValue;
    if (code == cudaSuccess)
      code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  }
  if (code == cudaSuccess) allowed.bytes[g->gpu].store(bytes, std::memory_order_relaxed);
  else cudaGetLastError();  // it is told here, and not by the next launch
  return code;
}

// Launches a kernel: 0, or the negative code of an error of CUDA's.
template <typename... P, typename... A> int wb_start(void (*kernel)(P...), wb_allowed& allowed, wb_launch* g, A... given) {
  const dim3 grid(g->grid[0], g->grid[1], g->grid[2]), block(g->block[0], g->block[1], g->block[2]);
  const auto stream = static_cast<cudaStream_t>(g->stream);
  if (g->shared && int64_t(g->shared) > allowed.bytes[g->gpu].load(std::memory_order_relaxed)) {
    const cudaError_t code = wb_allow(reinterpret_cast<const void*>(kernel), allowed, g);
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
