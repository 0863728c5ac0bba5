// What host cells in CUDA stand on besides: CUDA's types, launches, the current stream and the tensors' device.
//
// The C++ compiler reads the host half of a cell. There a kernel is a stub of the same type: `k<T><<<grid, block>>>(x)` has
// become (wb::configure(grid, block), k<T>(x)), and the stub launches the kernel that Python found for it in the device
// half. nvcc, for cells that cannot be parted, launches by itself. Of the driver there is a table: see driver.h.
#pragma once
#include "wb_host.h"

#include "driver.h"
#include "wb_host_cuda_types.h"

namespace wb {

inline const Driver* driver = nullptr;
inline thread_local int32_t device = 0, device_type = 0;  // of the tensors of the call that is under way

[[noreturn]] __attribute__((noinline, cold)) inline void driver_problem(const std::string& what, int code) {
  const char *name = nullptr, *text = nullptr;
  driver->error_name(code, &name);
  driver->error_text(code, &text);
  throw std::runtime_error(what + " failed: " + (text ? text : "an error without a text") + " (" + (name ? name : "?") + ")");
}
inline void driver_ok(int code, const char* what) {
  if (__builtin_expect(code != 0, 0)) driver_problem(what, code);
}
inline const Driver& table() {
  if (!driver) throw std::runtime_error("the cell was given no CUDA driver");
  return *driver;
}

// The stream that torch works on now, of the tensors' device.
inline cudaStream_t current_stream() {
  void* stream = nullptr;
  if (table().stream(device, &stream) != 0) throw std::runtime_error("torch did not say which stream is current");
  return static_cast<cudaStream_t>(stream);
}

// ---- the tensors' device, current for the time of a call -------------------------------------------------------------
struct Place {
  const char* name = nullptr;
  int32_t type = 0, index = 0;
};
inline std::string shown(const Place& p) {
  if (p.type == aoti_torch_device_type_cpu()) return "cpu";
  return "cuda:" + std::to_string(p.index);
}
inline void see(Place& first, const char* op, const char* name, const Tensor& t) {
  if (!t.defined()) return;
  Place here{name};
  aoti_torch_get_device_type(t.get(), &here.type);
  aoti_torch_get_device_index(t.get(), &here.index);
  if (!first.name) first = here;
  if (here.type != first.type || here.index != first.index)
    throw std::runtime_error(std::string(op) + ": " + name + " is on " + shown(here) + ", " + first.name + " on " + shown(first));
}
inline void see(Place& first, const char* op, const char* name, const std::optional<Tensor>& t) {
  if (t) see(first, op, name, *t);
}
template <typename T> void see(Place& first, const char* op, const char* name, const std::vector<T>& list) {
  if constexpr (!std::is_arithmetic_v<T>)
    for (const T& t : list) see(first, op, name, t);
}
template <typename T> void see(Place&, const char*, const char*, const T&) {}  // a number

class OnDevice {
  void* former_ = nullptr;
  int32_t outer_ = device, outer_type_ = device_type;
  bool changed_ = false;

  void enter(const Place& first) {
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

 public:
  template <typename... Given> OnDevice(const char* op, std::initializer_list<const char*> names, const Given&... given) {
    Place first;
    const char* const* name = names.begin();
    (see(first, op, *name++, given), ...);
    if (first.name) enter(first);
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() {
    device = outer_, device_type = outer_type_;
    if (changed_) driver->set_context(former_);
  }
};

inline Tensor absent_here() { return absent(device_type, device); }

#ifndef __CUDACC__
// ---- launches of the host half ---------------------------------------------------------------------------------------
struct Kernel {  // laid out the same in host_kernels.py
  const void* stub;
  void* handle;  // CUkernel
};
struct Kernels {
  int64_t count;
  const Kernel* rows;
};
inline std::atomic<const Kernels*> kernels{nullptr};  // replaced as a whole when the device half was edited

inline void* kernel_of(const void* stub, const char* name) {
  const Kernels* all = kernels.load(std::memory_order_acquire);
  for (int64_t i = 0; all && i < all->count; ++i)
    if (all->rows[i].stub == stub) return all->rows[i].handle;
  throw std::runtime_error(std::string("the device half of the cell has no kernel ") + name + " of this type");
}

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  bool given = false;
};
inline thread_local Configuration configuration;
inline void configure(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) {
  configuration = {grid, block, shared, stream, true};
}

inline std::string shown(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}
[[noreturn]] __attribute__((noinline, cold)) inline void refused(const char* name, const Configuration& c, const std::string& why) {
  throw std::runtime_error(std::string("launching ") + name + " on a grid of " + shown(c.grid) + ", blocks of " + shown(c.block) +
                           " and " + std::to_string(c.shared) + " bytes of shared memory: " + why);
}
inline void check_configuration(const char* name, const Configuration& c, const Gpu& gpu) {
  const dim3 &g = c.grid, &b = c.block;
  if (!g.x || !g.y || !g.z) refused(name, c, "the grid needs at least 1 block; launch nothing where there is nothing to do");
  if (g.x > 2147483647u || g.y > 65535 || g.z > 65535) refused(name, c, "a grid has at most (2147483647, 65535, 65535) blocks");
  if (!b.x || !b.y || !b.z) refused(name, c, "a block needs at least 1 thread");
  if (b.x > 1024 || b.y > 1024 || b.z > 64 || uint64_t(b.x) * b.y * b.z > 1024) refused(name, c, "a block has at most 1024 threads, 64 of them in z");
  if (c.shared > size_t(gpu.shared_limit))
    refused(name, c, "a block of this GPU (sm_" + std::to_string(gpu.arch) + ") has at most " + std::to_string(gpu.shared_limit));
}

// What a stub does.
inline void launch(const void* stub, const char* name, std::initializer_list<void*> given) {
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

// ---- of CUDA's runtime: a failed call has thrown, so there is no last error ------------------------------------------
inline cudaError_t last_error() { return cudaSuccess; }
inline const char* error_text(cudaError_t code) {
  const char* text = nullptr;
  table().error_text(code, &text);
  return text ? text : "no error";
}
inline const char* error_name(cudaError_t code) {
  const char* text = nullptr;
  table().error_name(code, &text);
  return text ? text : "?";
}
inline cudaError_t fill_async(void* to, int value, size_t bytes, cudaStream_t stream = nullptr) {
  driver_ok(table().fill(reinterpret_cast<uint64_t>(to), static_cast<unsigned char>(value), bytes, stream), "cudaMemsetAsync");
  return cudaSuccess;
}
template <typename F> cudaError_t set_attribute(F* stub, int attribute, int value) {
  driver_ok(table().set_attribute(attribute, value, kernel_of(reinterpret_cast<const void*>(stub), "of that name"), table().gpus[device].ordinal),
            "cudaFuncSetAttribute");
  return cudaSuccess;
}
inline cudaError_t get_device(int* index) { return *index = device, cudaSuccess; }
#endif

}  // namespace wb

#ifndef __CUDACC__
#define cudaGetLastError wb::last_error
#define cudaPeekAtLastError wb::last_error
#define cudaGetErrorString wb::error_text
#define cudaGetErrorName wb::error_name
#define cudaMemsetAsync wb::fill_async
#define cudaFuncSetAttribute wb::set_attribute
#define cudaGetDevice wb::get_device
#define WB_KERNELS \
  WB_EXPORT void wb_set_kernels(const void* all) { wb::kernels.store(static_cast<const wb::Kernels*>(all), std::memory_order_release); }
#else
#define WB_KERNELS
#endif
#define WB_HOST_CUDA \
  WB_KERNELS         \
  WB_EXPORT void wb_hook_driver(const void* d) { wb::driver = static_cast<const wb::Driver*>(d); }
