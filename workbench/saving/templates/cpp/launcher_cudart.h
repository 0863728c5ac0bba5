// GPUs through CUDA's runtime: the device and stream of a call, memory filled with zeros, launches that failed.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>

#include "cuda_launch.h"

extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace wb {

[[noreturn]] __attribute__((noinline, cold)) inline void runtime_problem(const char* what, int code, const char* more = "") {
  const auto error = static_cast<cudaError_t>(code);
  problem("%s failed: %s (%s)%s", what, cudaGetErrorString(error), cudaGetErrorName(error), more);
}
inline void ok(int code, const char* what) {
  if (__builtin_expect(code != 0, 0)) runtime_problem(what, code);
}

inline int32_t ask(cudaDeviceAttr attribute, int device) {
  int value = 0;
  ok(cudaDeviceGetAttribute(&value, attribute, device), "asking for the GPU");
  return value;
}

// What a launch must know of a device; asked once.
inline Gpu* known_gpu(int device) {
  static Gpu gpus[WB_GPUS];
  static std::atomic<bool> known[WB_GPUS];
  if (device < 0 || device >= WB_GPUS) problem("GPU %d is one of more than %d", device, WB_GPUS);
  if (__builtin_expect(!known[device].load(std::memory_order_acquire), 0)) {
    const int32_t major = ask(cudaDevAttrComputeCapabilityMajor, device);
    gpus[device] = {10 * major + ask(cudaDevAttrComputeCapabilityMinor, device), ask(cudaDevAttrMultiProcessorCount, device),
                    ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, device), major >= 9};
    known[device].store(true, std::memory_order_release);
  }
  return gpus + device;
}

inline void find_device(CudaFrame& f) {
  int i = 0;
  while (i < f.op.tensor_arguments && !f.tensors[i]) ++i;
  if (i == f.op.tensor_arguments) problem("no tensor was given, so nothing says on which GPU");
  f.index = f.tensors[i].device_index < 0 ? 0 : f.tensors[i].device_index;
  f.gpu = known_gpu(f.index);
}

inline void shape_launches(CudaFrame& f) { f.geometry(f); }

// The tensors' device is the current one while memory is filled and kernels are launched.
struct Inside {
  int former = 0;
  bool changed = false;
  explicit Inside(CudaFrame& f) {
    check(aoti_torch_get_current_cuda_stream(f.index, &f.stream), "asking for the current stream");
    ok(cudaGetDevice(&former), "asking for the current GPU");
    if (__builtin_expect(former == f.index, 1)) return;
    ok(cudaSetDevice(f.index), "choosing the GPU");
    changed = true;
  }
  Inside(const Inside&) = delete;
  ~Inside() {
    if (changed) cudaSetDevice(former);
  }
};
inline Inside enter(CudaFrame& f) { return Inside(f); }

inline void zero(CudaFrame& f, Tensor& t) {
  const size_t bytes = static_cast<size_t>(t.numel * element_size(t.dtype));
  ok(cudaMemsetAsync(t.data, 0, bytes, static_cast<cudaStream_t>(f.stream)), "filling memory with zeros");
}

[[noreturn]] __attribute__((noinline, cold)) inline void failed(CudaFrame& f, const Function& function, const Geometry& g, int code, int own) {
  if (code == cudaErrorInvalidValue && own && int64_t(g.shared) + own > f.gpu->shared_limit) {
    f.at = g.at;
    f.too_much_shared(g.shared, own);
  }
  Message what;
  what.add("launching %s on a grid of (%u, %u, %u), blocks of (%u, %u, %u) and %u bytes of shared memory", function.name,
           g.grid[0], g.grid[1], g.grid[2], g.block[0], g.block[1], g.block[2], g.shared);
  Message more;
  // The first is a launch's, the second of asking what the kernel takes.
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction)
#ifdef WB_ARCH
    more.add(": it is for " WB_ARCH " alone, this GPU is sm_%d", f.gpu->arch);
#else
    more.add(": it was not compiled for this GPU, sm_%d; build the package with TORCH_CUDA_ARCH_LIST=%d.%d", f.gpu->arch,
             f.gpu->arch / 10, f.gpu->arch % 10);
#endif
  if (code == cudaErrorLaunchOutOfResources) more.add(": its registers do not leave room for blocks of that size");
  runtime_problem(what.text, code, more.text);
}

inline void call_kernels(CudaFrame& f) {
  bind_tensors(f);
  for (int64_t k = 0; k < f.descriptor->function_count; ++k) {
    const Function& function = f.instance->functions[k];
    const Geometry& g = f.kernels[k];
    if (__builtin_expect(f.none != 0, 0)) refuse_none(f, function);
    wb_launch launch = {{g.grid[0], g.grid[1], g.grid[2]}, {g.block[0], g.block[1], g.block[2]},
                        {g.cluster[0], g.cluster[1], g.cluster[2]}, g.shared, f.index, f.stream, 0};
    const int code = reinterpret_cast<int (*)(const Value*, wb_launch*)>(function.entry)(f.values, &launch);
    if (__builtin_expect(code > 0, 0)) misfit(f, function, code);
    if (__builtin_expect(code < 0, 0)) failed(f, function, g, -code, launch.own);
  }
}

}  // namespace wb
