// What wb_host.h and wb_host_cuda.h declare and no template needs: compiled once into an object that every host half is
// linked with, or inline where nvcc compiles a cell as a whole. An edit then compiles the user's text and its wrapper alone.
#pragma once
#define WB_PARTS
#include "wb_host_cuda.h"
#include "wb_place_parts.h"

namespace wb {

[[noreturn]] __attribute__((noinline, cold)) WB_PART void driver_problem(const std::string& what, int code) {
  const char *name = nullptr, *text = nullptr;
  driver->error_name(code, &name);
  driver->error_text(code, &text);
  throw std::runtime_error(what + " failed: " + (text ? text : "an error without a text") + " (" + (name ? name : "?") + ")");
}
WB_PART cudaStream_t current_stream() {
  void* stream = nullptr;
  if (table().stream(device, &stream) != 0) throw std::runtime_error("torch did not say which stream is current");
  return static_cast<cudaStream_t>(stream);
}

WB_PART void OnDevice::enter(const Place& first) {
  const Driver& d = table();
  const int32_t index = first.index < 0 ? 0 : first.index;
  if (index >= d.gpu_count) throw std::runtime_error(std::string(first.name) + " is on " + shown(first) + ", which the driver does not know");
  Gpu& gpu = d.gpus[index];
  void* context = __atomic_load_n(&gpu.context, __ATOMIC_ACQUIRE);
  if (__builtin_expect(!context, 0)) {
    driver_ok(d.retain(&context, gpu.ordinal), "opening the GPU");
    __atomic_store_n(&gpu.context, context, __ATOMIC_RELEASE);
  }
  driver_ok(d.get_context(&former_), "asking for the current context");
  if (__builtin_expect(former_ != context, 0)) {
    driver_ok(d.set_context(context), "choosing the GPU");
    changed_ = true;
  }
  device = index, device_type = first.type;
}

#ifndef __CUDACC__
WB_PART void* kernel_of(const void* stub, const char* name) {
  const Kernels* all = kernels.load(std::memory_order_acquire);
  for (int64_t i = 0; all && i < all->count; ++i)
    if (all->rows[i].stub == stub) return all->rows[i].handle;
  throw std::runtime_error(std::string("the device half of the cell has no kernel ") + name + " of this type");
}
WB_PART std::string shown(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}
[[noreturn]] __attribute__((noinline, cold)) WB_PART void refused(const char* name, const Configuration& c, const std::string& why) {
  throw std::runtime_error(std::string("launching ") + name + " on a grid of " + shown(c.grid) + ", blocks of " + shown(c.block) +
                           " and " + std::to_string(c.shared) + " bytes of shared memory: " + why);
}
WB_PART void check_configuration(const char* name, const Configuration& c, const Gpu& gpu) {
  const dim3 &g = c.grid, &b = c.block;
  if (!g.x || !g.y || !g.z) refused(name, c, "the grid needs at least 1 block; launch nothing where there is nothing to do");
  if (g.x > 2147483647u || g.y > 65535 || g.z > 65535) refused(name, c, "a grid has at most (2147483647, 65535, 65535) blocks");
  if (!b.x || !b.y || !b.z) refused(name, c, "a block needs at least 1 thread");
  if (b.x > 1024 || b.y > 1024 || b.z > 64 || uint64_t(b.x) * b.y * b.z > 1024) refused(name, c, "a block has at most 1024 threads, 64 of them in z");
  if (c.shared > size_t(gpu.shared_limit))
    refused(name, c, "a block of this GPU (sm_" + std::to_string(gpu.arch) + ") has at most " + std::to_string(gpu.shared_limit));
}
WB_PART void launch(const void* stub, const char* name, std::initializer_list<void*> given) {
  const Configuration c = std::exchange(configuration, {});
  if (!c.given) throw std::runtime_error(std::string(name) + " is a kernel: write " + name + "<<<grid, block, 0, wb::current_stream()>>>(...)");
  const Driver& d = table();
  void* kernel = kernel_of(stub, name);
  const Gpu& gpu = d.gpus[device];
  check_configuration(name, c, gpu);
  if (c.shared > size_t(gpu.shared))
    driver_ok(d.set_attribute(8, static_cast<int>(c.shared), kernel, gpu.ordinal), "asking for more shared memory");  // MAX_DYNAMIC_SHARED_SIZE_BYTES
  const int code = d.launch(kernel, c.grid.x, c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z, static_cast<uint32_t>(c.shared),
                            c.stream, const_cast<void**>(given.begin()), nullptr);
  if (__builtin_expect(code != 0, 0)) driver_problem(std::string("launching ") + name, code);
}
#endif

}  // namespace wb
