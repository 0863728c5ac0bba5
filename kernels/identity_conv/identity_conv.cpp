// The identity through a depthwise convolution, whose kernel and count of calls live in an object: an op with a stateful class.
#include <ATen/ops/conv2d.h>
#include <ATen/ops/zeros.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cstring>

namespace {

struct ConvState : torch::CustomClassHolder {
  at::Tensor weight;  // [channels, 1, size, size], float32: 1 in the middle
  int64_t calls = 0;

  ConvState(int64_t channels, int64_t size) : weight(at::zeros({channels, 1, size, size})) {
    TORCH_CHECK(channels > 0 && size > 0 && size % 2 == 1, "ConvState: channels ", channels, " and size ", size,
                " should be positive, and the size odd, so that the kernel has a middle");
    weight.select(-1, size / 2).select(-1, size / 2).fill_(1);
  }
  ConvState(at::Tensor weight, int64_t calls) : weight(std::move(weight)), calls(calls) {}

  // What the object is made of, by name: what tracing makes its fake of, and what pickling keeps.
  std::tuple<std::tuple<std::string, at::Tensor>, std::tuple<std::string, int64_t>> flatten() {
    return {{"weight", weight}, {"calls", calls}};
  }
};
using State = c10::intrusive_ptr<ConvState>;

at::Tensor identity_conv_cpu(const at::Tensor& x, const State& state) {
  const int64_t channels = state->weight.size(0), size = state->weight.size(2);
  TORCH_CHECK(x.dim() == 4 && x.size(1) == channels, "identity_conv: x is ", x.sizes(), ", the object is for [N, ", channels, ", H, W]");
  state->calls += 1;
  const at::Tensor weight = state->weight.to(x.scalar_type());
  return at::conv2d(x.contiguous(), weight, {}, 1, at::IntArrayRef({size / 2, size / 2}), 1, channels);
}

}  // namespace

TORCH_LIBRARY(conv_lib, m) {
  m.class_<ConvState>("ConvState")
      .def(torch::init<int64_t, int64_t>(), "", {torch::arg("channels"), torch::arg("size") = 3})
      .def("calls", [](const State& self) { return self->calls; })
      .def("weight", [](const State& self) { return self->weight; })
      .def("__eq__", [](const State& self, const State& other) {  // torch compares arguments by it, also while it traces
        const at::Tensor &a = self->weight, &b = other->weight;
        return self->calls == other->calls && a.sizes() == b.sizes() && !std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes());
      })
      .def("__obj_flatten__", &ConvState::flatten)
      .def_pickle(
          [](const State& self) { return std::make_tuple(self->weight, self->calls); },
          [](std::tuple<at::Tensor, int64_t> kept) {
            return c10::make_intrusive<ConvState>(std::get<0>(kept).clone(), std::get<1>(kept));
          });
  m.def("identity_conv(Tensor x, __torch__.torch.classes.conv_lib.ConvState state) -> Tensor");
}

TORCH_LIBRARY_IMPL(conv_lib, CPU, m) {
  m.impl("identity_conv", &identity_conv_cpu);
}
