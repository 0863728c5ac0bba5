// What host cells stand on: torch's stable ABI, `Tensor`, and the conversions between a schema's types and C++ ones.
// Precompiled as a whole; cells include nothing of torch themselves.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "wb_body.h"

using torch::stable::Tensor;
using torch::headeronly::ScalarType;

namespace wb {

// A number of the schema (int64_t, double) as a narrower C++ type, or an error that names the argument.
template <typename To, typename From> To narrow(From value, const char* name) {
  if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    if (static_cast<From>(static_cast<To>(value)) != value || (value < 0) != (static_cast<To>(value) < To(0)))
      throw std::runtime_error(std::string(name) + " = " + std::to_string(value) + " does not fit the parameter's type");
  } else if constexpr (std::is_same_v<To, float>) {
    if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max())
      throw std::runtime_error(std::string(name) + " = " + std::to_string(value) + " does not fit a float");
  }
  return static_cast<To>(value);
}
template <typename To, typename From> std::optional<To> narrow_optional(const std::optional<From>& value, const char* name) {
  if (!value) return std::nullopt;
  return narrow<To>(*value, name);
}
template <typename To, typename From> std::vector<To> narrow_list(const std::vector<From>& values, const char* name) {
  std::vector<To> made;
  made.reserve(values.size());
  for (const From& v : values) made.push_back(narrow<To>(v, name));
  return made;
}

// A tensor that the launcher lends for one call.
inline Tensor borrow(void* handle) {
  AtenTensorHandle own = nullptr;
  if (aoti_torch_new_tensor_handle(static_cast<AtenTensorHandle>(handle), &own) != 0) throw std::runtime_error("a tensor could not be read");
  return Tensor(own);
}
inline std::optional<Tensor> borrow_optional(void* handle) {
  if (!handle) return std::nullopt;
  return borrow(handle);
}

// Where a schema must return a tensor and there is none: an empty one of bytes, which callers know.
inline Tensor absent() {
  AtenTensorHandle made = nullptr;
  const int64_t size = 0, stride = 1;
  if (aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(), aoti_torch_device_type_cpu(), 0, &made) != 0)
    throw std::runtime_error("no memory");
  return Tensor(made);
}
inline Tensor gradient(const Tensor& t) { return t.defined() ? t : absent(); }
inline Tensor gradient(const std::optional<Tensor>& t) { return t && t->defined() ? *t : absent(); }
inline std::vector<Tensor> gradient(const std::vector<Tensor>& list) { return list; }

inline bool moves(const Tensor& t) {
  const ScalarType type = t.scalar_type();
  return type == ScalarType::Float || type == ScalarType::Double || type == ScalarType::Half || type == ScalarType::BFloat16;
}

inline std::unique_ptr<torch::stable::detail::StableLibrary> library;
inline std::string reply;
}  // namespace wb

#define WB_EXPORT extern "C" __attribute__((visibility("default")))
#define WB_MODULE(ns, key, ...)                                                                                  \
  WB_EXPORT const char* wb_unregister() { return wb::library.reset(), nullptr; }                                 \
  WB_EXPORT const char* wb_register() {                                                                          \
    if (wb::library) return nullptr;                                                                             \
    try {                                                                                                        \
      using torch::stable::detail::StableLibrary;                                                                \
      wb::library = std::make_unique<StableLibrary>(StableLibrary::Kind::IMPL, ns, key, "cell", 1);              \
      auto& m = *wb::library;                                                                                    \
      __VA_ARGS__                                                                                                \
    } catch (const std::exception& error) {                                                                      \
      wb::library.reset();                                                                                       \
      wb::reply = error.what();                                                                                  \
      return wb::reply.c_str();                                                                                  \
    }                                                                                                            \
    return nullptr;                                                                                              \
  }
