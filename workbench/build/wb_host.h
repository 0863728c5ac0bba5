// What host cells stand on: torch's stable ABI, `Tensor`, and the conversions between a schema's types and C++ ones.
// Precompiled as a whole; cells include nothing of torch themselves.
#pragma once
#define WB_LIVE  // see launcher.h
#include <torch/headeronly/util/shim_utils.h>

#include <stdexcept>
#include <string>

#ifndef WB_PART  // in a host half of a CUDA cell what no template needs is compiled apart: WB_APART, wb_host_cuda_parts.h
#define WB_PART inline
#endif

// torch >= 2.13 says what went wrong; before, this symbol is missing and null.
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

namespace wb {
[[noreturn]] __attribute__((cold)) WB_PART void torch_failed(const char* call);
}  // namespace wb

// What torch's own headers would throw is the text of this macro's argument.
#undef TORCH_ERROR_CODE_CHECK
#define TORCH_ERROR_CODE_CHECK(call) \
  if ((call) != TORCH_SUCCESS) {     \
    wb::torch_failed(#call);           \
  }

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "wb_body.h"
#include "wb_say.h"
#ifdef WB_LIVE
#include "wb_arrive.h"
#endif

using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::Tensor;

// The cell names the op that it fills: what other blocks in it would register, for ever, is left out.
#undef STABLE_TORCH_LIBRARY
#undef STABLE_TORCH_LIBRARY_FRAGMENT
#undef STABLE_TORCH_LIBRARY_IMPL
#define WB_LEFT_OUT(m) \
  template <typename WbLeftOut> [[maybe_unused]] static void C10_CONCATENATE(wb_left_out_, C10_UID)([[maybe_unused]] WbLeftOut & m)
#define STABLE_TORCH_LIBRARY(ns, m) WB_LEFT_OUT(m)
#define STABLE_TORCH_LIBRARY_FRAGMENT(ns, m) WB_LEFT_OUT(m)
#define STABLE_TORCH_LIBRARY_IMPL(ns, k, m) WB_LEFT_OUT(m)

namespace wb {

// ---- the schema's values as those of a signature: `what` is "lab::f: k", `as` the parameter as written ---------------
[[noreturn]] __attribute__((cold)) WB_PART void unfit(double value, const char* what, const char* as);
[[noreturn]] __attribute__((cold)) WB_PART void unfit(int64_t value, const char* what, const char* as);
template <typename To, typename From> To narrow(From value, const char* what, const char* as) {
  const To made = static_cast<To>(value);
  if constexpr (std::is_integral_v<To>) {
    if (static_cast<From>(made) != value || (value < 0) != (made < To(0))) unfit(value, what, as);
  } else if constexpr (std::is_same_v<To, float>) {
    if (std::isfinite(value) && !std::isfinite(made)) unfit(value, what, as);
  }
  return made;
}
template <typename To, typename From>
std::optional<To> narrow_optional(const std::optional<From>& value, const char* what, const char* as) {
  if (!value) return std::nullopt;
  return narrow<To>(*value, what, as);
}
template <typename To, typename From>
std::vector<To> narrow_list(const std::vector<From>& values, const char* what, const char* as) {
  std::vector<To> made;
  made.reserve(values.size());
  for (const From& v : values) made.push_back(narrow<To>(v, what, as));
  return made;
}
[[noreturn, maybe_unused]] __attribute__((noinline, cold)) static void is_none(const char* what, const char* as) {
  throw std::runtime_error(std::string(what) + " is None, which the parameter `" + as + "` cannot be: make it a std::optional");
}
template <typename T> T& given(std::optional<T>& value, const char* what, const char* as) {
  if (!value) is_none(what, as);
  return *value;
}

#ifdef WB_LIVE
// ---- dtypes that arrive for the first time: the notebook tries the function with them before it is called here -------
inline int8_t dtype_of(const Tensor& t) {
  int32_t code = -1;
  if (t.defined()) aoti_torch_get_dtype(t.get(), &code);
  return static_cast<int8_t>(code);
}
inline int8_t dtype_of(const std::optional<Tensor>& t) { return t ? dtype_of(*t) : int8_t(-1); }
inline void note(Arrival& a, const Tensor& t) { a.add(dtype_of(t)); }
inline void note(Arrival& a, const std::optional<Tensor>& t) { a.add(dtype_of(t)); }
template <typename T> void note(Arrival& a, const std::vector<T>& list) {
  if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, std::optional<Tensor>>) {
    a.add(list.empty() ? int8_t(-1) : dtype_of(list.front()));
    for (const T& t : list) a.mix(dtype_of(t));
  }
}
template <typename T> void note(Arrival&, const T&) {}  // a number
template <typename... Given> void arrive(const Given&... given) {
  if (!miss) return;
  Arrival a;
  (note(a, given), ...);
  look_up(a);
}
#endif

// ---- what the launcher lends for one call ----------------------------------------------------------------------------
inline Tensor borrow(void* handle) {
  AtenTensorHandle own = nullptr;
  if (aoti_torch_new_tensor_handle(static_cast<AtenTensorHandle>(handle), &own) != 0) throw std::runtime_error("a tensor could not be read");
  return Tensor(own);
}
inline std::optional<Tensor> borrow_optional(void* handle) {
  if (!handle) return std::nullopt;
  return borrow(handle);
}
inline Tensor borrow_given(void* handle, const char* what, const char* as) {
  if (!handle) is_none(what, as);
  return borrow(handle);
}

// ---- results ---------------------------------------------------------------------------------------------------------
template <typename To, typename From> To as(From&& value) {
  if constexpr (std::is_same_v<To, std::decay_t<From>>) return std::forward<From>(value);
  else return static_cast<To>(value);
}
template <typename... To, typename Tuple, size_t... I> std::tuple<To...> each(Tuple&& all, std::index_sequence<I...>) {
  return {as<To>(std::get<I>(std::move(all)))...};
}
// What a function returned, one value or a tuple of them, as the schema's types: a float is a double there.
template <typename... To, typename All> std::tuple<To...> results(All all) {
  if constexpr (requires { std::tuple_size<All>::value; }) return each<To...>(std::move(all), std::index_sequence_for<To...>());
  else return {as<To>(std::move(all))...};
}
template <size_t... I, typename All> auto pick(All&& all) {
  if constexpr (sizeof...(I) == 1) return (std::get<I>(std::move(all)), ...);
  else return std::make_tuple(std::get<I>(std::move(all))...);
}

// ---- strides ---------------------------------------------------------------------------------------------------------
struct NoGradients {
  bool former = aoti_torch_grad_mode_is_enabled();
  NoGradients() { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGradients() { aoti_torch_grad_mode_set_enabled(former); }
};
inline bool strided(const Tensor& t) { return !t.is_contiguous(); }
inline bool strided(const std::optional<Tensor>& t) { return t && t->defined() && strided(*t); }
template <typename T> bool strided(const std::vector<T>& list) {
  if constexpr (!std::is_arithmetic_v<T>)
    for (const T& t : list) if (strided(t)) return true;
  return false;
}
template <typename T> bool strided(const T&) { return false; }
#ifdef WB_LIVE
inline int ask_layout = 0;  // 1: ask for the strides of the results at every call
template <typename... Given> bool ask(const Given&... given) {
  return __builtin_expect(ask_layout || (strided(given) || ...), 0);
}
#else
template <typename... Given> bool ask(const Given&... given) { return __builtin_expect((strided(given) || ...), 0); }
template <typename... Given> bool always(const Given&...) { return true; }
#endif

inline void make_contiguous(Tensor& t) {
  if (!strided(t)) return;
  NoGradients guard;
  t = torch::stable::contiguous(t);
}
inline void make_contiguous(std::optional<Tensor>& t) { if (t) make_contiguous(*t); }
template <typename T> void make_contiguous(std::vector<T>& list) {
  if constexpr (!std::is_arithmetic_v<T>)
    for (T& t : list) make_contiguous(t);
}
template <typename T> void make_contiguous(T&) {}  // a number
template <typename T> void refuse_strided(const T& t, const char* what) {
  if (strided(t)) throw std::runtime_error(std::string(what) + " is written in place and not contiguous, and the function reads no strides");
}

WB_PART void restride(Tensor& got, StableIValue wanted);  // takes over `wanted`

// The reference's strides are the contract: a call with arguments that are not contiguous asks for them.
template <bool contiguous, size_t... I, typename Call, typename... Given>
__attribute__((noinline, cold)) auto slowly(Call call, const char* layout, Given&... given) {
  auto all = [call](auto... own) {
    if constexpr (contiguous) (make_contiguous(own), ...);
    return call(own...);
  }(given...);
  NoGradients guard;
  StableIValue stack[sizeof...(I) + sizeof...(Given) + 1] = {torch::stable::detail::from(given)...};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(layout, "", stack, TORCH_ABI_VERSION));
  (restride(std::get<I>(all), stack[I]), ...);
  return all;
}

// ---- gradients -------------------------------------------------------------------------------------------------------

// Where a schema must return a tensor and there is none: an empty one of bytes, which callers know.
inline Tensor absent(int32_t device_type = aoti_torch_device_type_cpu(), int32_t device = 0) {
  AtenTensorHandle made = nullptr;
  const int64_t size = 0, stride = 1;
  if (aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(), device_type, device, &made) != 0)
    throw std::runtime_error("no memory");
  return Tensor(made);
}
inline Tensor gradient(const Tensor& t, const char* what) {
  if (!t.defined())
    throw std::runtime_error(std::string(what) + " is undefined: return std::optional<Tensor>, and std::nullopt for a gradient to be left to the reference");
  return t;
}
// One that is left to the reference: undefined.
inline Tensor gradient(const std::optional<Tensor>& t, const char*) {
  if (t && t->defined()) return *t;
  AtenTensorHandle none = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&none));
  return Tensor(none);
}
inline std::vector<Tensor> gradient(const std::vector<Tensor>& list, const char*) { return list; }

#ifdef WB_LIVE
// ---- registration of the one cell of this library; what goes wrong is said in a text ----------------------------------
using torch::stable::detail::StableLibrary;
inline StableLibrary* library = nullptr;  // never destroyed at exit: torch may be gone by then
WB_PART void open_library(const char* space, const char* key);
WB_PART const char* close_library();
WB_PART const char* failed_library(const char* why);
#endif
}  // namespace wb

#ifdef WB_LIVE
#define WB_EXPORT extern "C" __attribute__((visibility("default")))
#define WB_MODULE(ns, key, ...)                                                                                      \
  WB_EXPORT void wb_ask_layout(int always) { wb::ask_layout = always; }                                              \
  WB_ARRIVALS                                                                                                        \
  WB_EXPORT const char* wb_unregister() { return wb::close_library(); }                                              \
  WB_EXPORT const char* wb_register() {                                                                              \
    if (wb::library) return nullptr;                                                                                 \
    try {                                                                                                            \
      wb::open_library(ns, key);                                                                                     \
      auto& m = *wb::library;                                                                                        \
      __VA_ARGS__                                                                                                    \
    } catch (const std::exception& error) {                                                                          \
      return wb::failed_library(error.what());                                                                       \
    }                                                                                                                \
    return nullptr;                                                                                                  \
  }
#endif

#ifndef WB_APART
#include "wb_host_parts.h"
#endif
