// What a check says: its words, put together without the locale that a stream of C++ brings.
#pragma once
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace wb {

template <typename T> void say(std::string& m, const T& value) {
  char text[40];
  if constexpr (std::is_same_v<T, bool>) m += value ? "true" : "false";
  else if constexpr (std::is_same_v<T, char>) m += value;
  else if constexpr (std::is_enum_v<T> && requires { std::string(toString(value)); }) m += toString(value);  // a dtype
  else if constexpr (std::is_floating_point_v<T>) snprintf(text, sizeof text, "%g", static_cast<double>(value)), m += text;
  else if constexpr (std::is_integral_v<T>) m += std::to_string(value);
  else if constexpr (std::is_enum_v<T>) m += std::to_string(static_cast<long long>(value));
  else if constexpr (std::is_convertible_v<const T&, std::string_view>) m += std::string_view(value);
  else {
    std::ostringstream stream;
    stream << value;
    m += stream.str();
  }
}
template <typename... T> [[noreturn]] __attribute__((noinline, cold)) void unmet(const char* condition, const T&... said) {
  std::string m;
  if constexpr (sizeof...(T) == 0) m = std::string("expected ") + condition;
  (say(m, said), ...);
  throw std::runtime_error(m);
}
}  // namespace wb

// The words alone: where the check stands, the caller of an op need not know, and cells move.
#undef STD_TORCH_CHECK
#define STD_TORCH_CHECK(cond, ...)                                         \
  if (__builtin_expect(!(cond), 0)) {                                      \
    wb::unmet(#cond __VA_OPT__(, ) __VA_ARGS__);                           \
  }
