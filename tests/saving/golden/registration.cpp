// What normed_ops registers with torch on the CPU, through the stable ABI.
#include <torch/csrc/stable/library.h>

namespace normed_backward_cpu { void call(StableIValue*, uint64_t, uint64_t); }
namespace normed_forward_cpu { void call(StableIValue*, uint64_t, uint64_t); }

STABLE_TORCH_LIBRARY_FRAGMENT(lab, m) {
  m.def("normed(Tensor x, float eps=1e-08) -> Tensor");
  m.def("normed_forward(Tensor x, float eps=1e-08) -> (Tensor, Tensor)");
  m.def("normed_backward(Tensor? grad_out, Tensor x, float eps, Tensor out, Tensor length) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lab, CPU, m) {
  m.impl("normed_backward", &normed_backward_cpu::call);
  m.impl("normed", &normed_forward_cpu::call);
  m.impl("normed_forward", &normed_forward_cpu::call);
}
