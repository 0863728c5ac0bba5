// What wb_place.h declares and no template needs; whoever includes it says in WB_PART whether it is inline.
#pragma once
#include "wb_place.h"

namespace wb {

WB_PART std::string shown(const Place& p) {
  if (p.type == aoti_torch_device_type_cpu()) return "cpu";
  return "cuda:" + std::to_string(p.index);
}
WB_PART void see(Place& first, const char* op, const char* name, const Tensor& t) {
  if (!t.defined()) return;
  Place here{name};
  aoti_torch_get_device_type(t.get(), &here.type);
  aoti_torch_get_device_index(t.get(), &here.index);
  if (!first.name) first = here;
  if (here.type != first.type || here.index != first.index)
    throw std::runtime_error(std::string(op) + ": " + name + " is on " + shown(here) + ", " + first.name + " on " + shown(first));
}

}  // namespace wb
