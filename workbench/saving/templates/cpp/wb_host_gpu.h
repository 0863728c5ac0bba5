// What functions on tensors of a GPU stand on besides: the current stream, and the tensors' device for the time of a call.
#pragma once
#include "wb_host.h"

#include "wb_place_parts.h"

#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cfloat>
#include <climits>

extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

using bfloat16 = __nv_bfloat16;

namespace wb {

inline thread_local int32_t device = 0, device_type = 0;  // of the tensors of the call that is under way

inline cudaStream_t current_stream() {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(device, &stream) != 0) throw std::runtime_error("torch did not say which stream is current");
  return static_cast<cudaStream_t>(stream);
}

class OnDevice {
  int former_ = 0;
  int32_t outer_ = device, outer_type_ = device_type;
  bool changed_ = false;

  void enter(const Place& first) {
    device = first.index < 0 ? 0 : first.index, device_type = first.type;
    if (cudaGetDevice(&former_) != cudaSuccess) throw std::runtime_error("CUDA did not say which GPU is current");
    changed_ = former_ != device;
    if (changed_ && cudaSetDevice(device) != cudaSuccess) throw std::runtime_error("CUDA has no " + shown(first));
  }

 public:
  template <typename... Given> OnDevice(const char* op, std::initializer_list<const char*> names, const Given&... given) {
    Place first;
    const char* const* name = names.begin();
    (see(first, op, *name++, given), ...);
    if (first.name) enter(first);
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() noexcept(false) {
    if (changed_) cudaSetDevice(former_);
    device = outer_, device_type = outer_type_;
    const cudaError_t left = cudaGetLastError();
    if (left != cudaSuccess && std::uncaught_exceptions() == 0)
      throw std::runtime_error(std::string("a launch failed: ") + cudaGetErrorString(left));
  }
};

inline Tensor absent_here() { return absent(device_type, device); }

}  // namespace wb

// As kernels write it: <<<grid, block, 0, @wb@::current_stream()>>>
namespace @wb@ {
using wb::current_stream;
}
