// What host cells in CUDA stand on besides: CUDA's types, launches, the current stream and the tensors' device.
//
// The C++ compiler reads the host half of a cell. There a kernel is a stub of the same type: `k<T><<<grid, block>>>(x)` has
// become (wb::configure(grid, block), k<T>(x)), and the stub launches the kernel that Python found for it in the device
// half. nvcc, for cells that cannot be parted, launches by itself. Of the driver there is a table: see driver.h.
#pragma once
#ifdef __CUDACC__
#define WB_PART inline
#else
#define WB_PART
#ifndef WB_PARTS
#define WB_APART
#endif
#endif
#include "wb_host.h"

#include "driver.h"
#include "wb_host_cuda_types.h"
#include "wb_place.h"

namespace wb {

inline const Driver* driver = nullptr;
inline thread_local int32_t device = 0, device_type = 0;  // of the tensors of the call that is under way

[[noreturn]] WB_PART void driver_problem(const std::string& what, int code);
inline void driver_ok(int code, const char* what) {
  if (__builtin_expect(code != 0, 0)) driver_problem(what, code);
}
inline const Driver& table() {
  if (!driver) throw std::runtime_error("the cell was given no CUDA driver");
  return *driver;
}

// The stream that torch works on now, of the tensors' device.
WB_PART cudaStream_t current_stream();

// ---- the tensors' device, current for the time of a call -------------------------------------------------------------
class OnDevice {
  void* former_ = nullptr;
  int32_t outer_ = device, outer_type_ = device_type;
  bool changed_ = false;

  WB_PART void enter(const Place& first);

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

WB_PART void* kernel_of(const void* stub, const char* name);

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

WB_PART std::string shown(const dim3& d);
[[noreturn]] WB_PART void refused(const char* name, const Configuration& c, const std::string& why);
WB_PART void check_configuration(const char* name, const Configuration& c, const Gpu& gpu);

// What a stub does.
WB_PART void launch(const void* stub, const char* name, std::initializer_list<void*> given);

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

#ifdef __CUDACC__
#include "wb_host_cuda_parts.h"
#endif
