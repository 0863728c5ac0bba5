// CUDA's own types where its headers are, stand-ins for the few that host code needs where they are not; and what marks
// device code, which is nothing to a C++ compiler.
#pragma once

#ifndef __CUDACC__
#pragma GCC visibility push(default)  // a stub with one of these as its template's argument must be found by its name
#if __has_include(<cuda_fp16.h>) && __has_include(<driver_types.h>)
#include <vector_types.h>

#include <driver_types.h>
#include <vector_functions.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
using bfloat16 = __nv_bfloat16;
#else
#define WB_VECTOR(T, name)                             \
  struct name##1 { T x; };                             \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };   \
  struct name##3 { T x, y, z; };                       \
  struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };
WB_VECTOR(signed char, char) WB_VECTOR(unsigned char, uchar)
WB_VECTOR(short, short) WB_VECTOR(unsigned short, ushort)
WB_VECTOR(int, int) WB_VECTOR(unsigned int, uint)
WB_VECTOR(long long, longlong) WB_VECTOR(unsigned long long, ulonglong)
WB_VECTOR(float, float) WB_VECTOR(double, double)
struct dim3 {
  unsigned int x = 1, y = 1, z = 1;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};
struct CUstream_st;
using cudaStream_t = CUstream_st*;
enum cudaError { cudaSuccess = 0 };
using cudaError_t = cudaError;
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
#define __align__(n) __attribute__((aligned(n)))
// To point to, not to reckon with.
struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using bfloat16 = __nv_bfloat16;
#endif
#pragma GCC visibility pop

#define WB_CUDACC 1  // see cuda_stubs.py

// A kernel's stub must be found under its own name, and keep it.
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __maxnreg__
#undef __block_size__
#undef __inline_hint__
#undef __nv_pure__
#undef __grid_constant__
#undef __noinline__  // a macro of this name breaks the C++ library's own headers
#define __global__ __attribute__((visibility("default"), noinline, used))
#define __device__
#define __host__
#define __constant__
#define __shared__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __block_size__(...)
#define __inline_hint__
#define __nv_pure__
#define __grid_constant__
#endif
