// On which device the tensors of a call are: all where the first one is. Defined in wb_place_parts.h.
#pragma once
#include "wb_host.h"

namespace wb {

struct Place {
  const char* name = nullptr;
  int32_t type = 0, index = 0;
};
WB_PART std::string shown(const Place& p);
WB_PART void see(Place& first, const char* op, const char* name, const Tensor& t);
inline void see(Place& first, const char* op, const char* name, const std::optional<Tensor>& t) {
  if (t) see(first, op, name, *t);
}
template <typename T> void see(Place& first, const char* op, const char* name, const std::vector<T>& list) {
  if constexpr (!std::is_arithmetic_v<T>)
    for (const T& t : list) see(first, op, name, t);
}
template <typename T> void see(Place&, const char*, const char*, const T&) {}  // a number

}  // namespace wb
