// What stands around a function on at::Tensor that fills a slot of an op: the schema's values as the types of its
// signature, with range checks; its results as what the schema promises; and registration that can be taken back.
#pragma once
#define WB_LIVE  // see launcher.h
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef WB_LIVE
#include "wb_arrive.h"
#endif

// The cell names the op that it fills, so what other blocks in it would register is left out. A template that nothing
// instantiates costs no time, and what would not fit torch's own registration is no error.
#undef TORCH_LIBRARY
#undef TORCH_LIBRARY_FRAGMENT
#undef TORCH_LIBRARY_IMPL
#define WB_GLUE_(a, b) a##b
#define WB_GLUE(a, b) WB_GLUE_(a, b)
#define WB_LEFT_OUT(m) \
  template <typename WbLeftOut> [[maybe_unused]] static void WB_GLUE(wb_left_out_, __COUNTER__)([[maybe_unused]] WbLeftOut & m)
#define TORCH_LIBRARY(ns, m) WB_LEFT_OUT(m)
#define TORCH_LIBRARY_FRAGMENT(ns, m) WB_LEFT_OUT(m)
#define TORCH_LIBRARY_IMPL(ns, k, m) WB_LEFT_OUT(m)
#ifdef PYBIND11_MODULE
#undef PYBIND11_MODULE
#define PYBIND11_MODULE(name, m) WB_LEFT_OUT(m)
#endif

namespace wb {

// ---- the schema's values as C++ types -------------------------------------------------------------------------------
template <typename> struct Unbox;
template <typename T> T take(const c10::IValue& v, const char* name) { return Unbox<T>::from(v, name); }

template <typename To> To number(const c10::IValue& v, const char* name) {
  if constexpr (std::is_floating_point_v<To>) {
    const double d = v.isInt() ? static_cast<double>(v.toInt()) : v.isBool() ? v.toBool() : v.toDouble();
    TORCH_CHECK(!std::isfinite(d) || std::abs(d) <= std::numeric_limits<To>::max(), name, " = ", d, " does not fit a float");
    return static_cast<To>(d);
  } else {
    const int64_t i = v.isBool() ? static_cast<int64_t>(v.toBool()) : v.isInt() ? v.toInt() : v.toSymInt().expect_int();
    TORCH_CHECK(static_cast<int64_t>(static_cast<To>(i)) == i && (i < 0) == (static_cast<To>(i) < To(0)), name, " = ", i,
                " does not fit the parameter's type, an integer of ", 8 * sizeof(To), " bits");
    return static_cast<To>(i);
  }
}
template <typename T> struct Unbox {
  static T from(const c10::IValue& v, const char* name) {
    if constexpr (std::is_same_v<T, bool>) return v.isInt() ? v.toInt() != 0 : v.toBool();
    else if constexpr (std::is_arithmetic_v<T>) return number<T>(v, name);
    else return v.to<T>();
  }
};
template <> struct Unbox<at::Tensor> {
  static at::Tensor from(const c10::IValue& v, const char*) { return v.isNone() ? at::Tensor() : v.toTensor(); }
};
template <> struct Unbox<std::string_view> {
  static std::string_view from(const c10::IValue& v, const char*) { return v.toStringRef(); }
};
template <typename T> struct Unbox<std::optional<T>> {
  static std::optional<T> from(const c10::IValue& v, const char* name) {
    if (v.isNone()) return std::nullopt;
    if constexpr (std::is_same_v<T, at::Tensor>)
      if (!v.toTensor().defined()) return std::nullopt;
    return take<T>(v, name);
  }
};
template <typename T> struct Unbox<std::vector<T>> {
  static std::vector<T> from(const c10::IValue& v, const char* name) {
    std::vector<T> made;
    if (v.isNone()) return made;
    for (const c10::IValue& e : v.toListRef()) made.push_back(take<T>(e, name));
    return made;
  }
};
template <typename T, size_t N> struct Unbox<std::array<T, N>> {
  static std::array<T, N> from(const c10::IValue& v, const char* name) {
    const auto list = v.toListRef();
    TORCH_CHECK(list.size() == N, name, " has ", list.size(), " elements, the parameter takes ", N);
    std::array<T, N> made;
    for (size_t i = 0; i < N; ++i) made[i] = take<T>(list[i], name);
    return made;
  }
};

// A value for the time of one call; a parameter that only refers to a list needs one to refer to.
template <typename T> struct Given {
  T value;
  Given(const c10::IValue& v, const char* name) : value(take<T>(v, name)) {}
};
template <typename T> struct Rows {
  c10::SmallVector<T, 6> kept;
  Rows(const c10::IValue& v, const char* name) {
    if (!v.isNone()) for (const c10::IValue& e : v.toListRef()) kept.push_back(take<T>(e, name));
  }
};
template <typename T> struct Given<c10::ArrayRef<T>> : Rows<T> {
  c10::ArrayRef<T> value;
  Given(const c10::IValue& v, const char* name) : Rows<T>(v, name), value(this->kept) {}
};
template <typename T> struct Given<at::OptionalArrayRef<T>> : Rows<T> {
  at::OptionalArrayRef<T> value;
  Given(const c10::IValue& v, const char* name) : Rows<T>(v, name) {
    if (!v.isNone()) value = c10::ArrayRef<T>(this->kept);
  }
};
template <typename T> struct Given<std::optional<c10::ArrayRef<T>>> : Rows<T> {
  std::optional<c10::ArrayRef<T>> value;
  Given(const c10::IValue& v, const char* name) : Rows<T>(v, name) {
    if (!v.isNone()) value = c10::ArrayRef<T>(this->kept);
  }
};
template <> struct Given<at::ITensorListRef> : Rows<at::Tensor> {
  at::ITensorListRef value;
  Given(const c10::IValue& v, const char* name) : Rows<at::Tensor>(v, name), value(c10::ArrayRef<at::Tensor>(kept)) {}
};

template <typename> struct Signature;
template <typename R, typename... P> struct Signature<R (*)(P...)> {
  template <size_t I> using Parameter = std::tuple_element_t<I, std::tuple<P...>>;
};
template <typename R, typename... P> struct Signature<R (*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <typename F, size_t I> using ParameterOf = typename Signature<F>::template Parameter<I>;
template <typename F, size_t I> using GivenTo = Given<std::remove_cv_t<std::remove_reference_t<ParameterOf<F, I>>>>;

// An incoming gradient that was expanded, after a sum say, reads out of bounds in a loop over its elements.
inline void make_contiguous(at::Tensor& t) { if (t.defined()) t = t.contiguous(); }
inline void make_contiguous(std::optional<at::Tensor>& t) { if (t) make_contiguous(*t); }
inline void make_contiguous(std::vector<at::Tensor>& list) { for (at::Tensor& t : list) make_contiguous(t); }
template <typename T> void make_contiguous(T&) {}

// ---- results --------------------------------------------------------------------------------------------------------
using Values = std::vector<c10::IValue>;

inline at::Tensor absent() { return at::empty({0}, at::TensorOptions(at::kByte)); }

inline void put(Values& out, at::Tensor t) { out.emplace_back(std::move(t)); }
inline void put(Values& out, const std::optional<at::Tensor>& t) { out.emplace_back(t ? *t : at::Tensor()); }
inline void put(Values& out, const std::vector<at::Tensor>& list) { out.emplace_back(list); }
inline void put(Values& out, at::TensorList list) { out.emplace_back(list.vec()); }
template <typename T> std::enable_if_t<std::is_arithmetic_v<T>> put(Values& out, T number) {
  if constexpr (std::is_same_v<T, bool>) out.emplace_back(number);
  else if constexpr (std::is_floating_point_v<T>) out.emplace_back(static_cast<double>(number));
  else out.emplace_back(static_cast<int64_t>(number));
}
template <typename T> auto put_all(Values& out, T&& all) -> decltype(put(out, std::forward<T>(all))) {
  put(out, std::forward<T>(all));
}
template <typename... T> void put_all(Values& out, std::tuple<T...>&& all) {
  std::apply([&](auto&... each) { (put(out, std::move(each)), ...); }, all);
}
template <typename A, typename B> void put_all(Values& out, std::pair<A, B>&& all) {
  put(out, std::move(all.first)), put(out, std::move(all.second));
}
template <typename T, size_t N> void put_all(Values& out, std::array<T, N>&& all) {
  for (T& each : all) put(out, std::move(each));
}
// A vector of tensors as that many results.
inline void put_each(Values& out, std::vector<at::Tensor>&& all) {
  for (at::Tensor& each : all) put(out, std::move(each));
}

template <typename F> void each_tensor(const c10::IValue& v, F f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isList()) {
    for (const c10::IValue& e : v.toListRef())
      if (e.isTensor() && e.toTensor().defined()) f(e.toTensor());
  }
}
// The device of the tensors, which must be one.
inline std::optional<c10::Device> one_device(const c10::IValue* given, size_t count, const char* op) {
  std::optional<c10::Device> first;
  for (size_t i = 0; i < count; ++i)
    each_tensor(given[i], [&](const at::Tensor& t) {
      if (!first) first = t.device();
      TORCH_CHECK(t.device() == *first, op, ": one tensor is on ", first->str(), ", another on ", t.device().str());
    });
  return first;
}
inline void* memory(const at::Tensor& t) { return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr; }

// A result is a tensor of its own: `x.contiguous()` of a contiguous x is x.
inline void apart(Values& out, const c10::IValue* given, size_t count) {
  std::vector<void*> used;
  for (size_t i = 0; i < count; ++i) each_tensor(given[i], [&](const at::Tensor& t) { used.push_back(memory(t)); });
  const auto own = [&](const at::Tensor& t) {
    for (void* m : used) if (m && m == memory(t)) return t.clone();
    used.push_back(memory(t));
    return t;
  };
  for (c10::IValue& v : out) {
    if (v.isTensor() && v.toTensor().defined()) v = own(v.toTensor());
    else if (v.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(t.defined() ? own(t) : t);
      v = std::move(list);
    }
  }
}

// The strides of the reference, where an argument is not contiguous or every call must ask; as launchers do it.
inline bool ask_always = false;
inline void strides(Values& out, size_t outputs, const char* layout, const c10::IValue* given, size_t count) {
  bool ask = ask_always;
  for (size_t i = 0; i < count && !ask; ++i)
    each_tensor(given[i], [&](const at::Tensor& t) { ask = ask || !t.is_contiguous(); });
  if (!ask || !outputs) return;
  const auto op = c10::Dispatcher::singleton().findSchema({layout, ""});
  if (!op) return;
  torch::jit::Stack wanted(given, given + count);
  try {
    op->callBoxed(&wanted);
  } catch (const std::exception&) {
    return;  // an op without a reference promises no strides
  }
  for (size_t i = 0; i < outputs && i < wanted.size() && i < out.size(); ++i) {
    if (!wanted[i].isTensor() || !out[i].isTensor() || !out[i].toTensor().defined()) continue;
    const at::Tensor &want = wanted[i].toTensor(), &have = out[i].toTensor();
    if (want.sizes() != have.sizes() || want.dtype() != have.dtype() || want.strides() == have.strides()) continue;
    out[i] = want.copy_(have);
  }
}

#ifdef WB_LIVE
inline int8_t dtype_of(const c10::IValue& v) {
  return v.isTensor() && v.toTensor().defined() ? static_cast<int8_t>(v.toTensor().scalar_type()) : int8_t(-1);
}
// `places`: the arguments that are tensors, or lists of them.
inline void arrive(const c10::IValue* v, std::initializer_list<size_t> places) {
  if (!miss) return;
  Arrival a;
  for (const size_t i : places) {
    if (v[i].isList()) {
      const auto list = v[i].toListRef();
      a.add(list.empty() ? int8_t(-1) : dtype_of(list[0]));
      for (const c10::IValue& e : list) a.mix(dtype_of(e));
    } else a.add(dtype_of(v[i]));
  }
  look_up(a);
}
#endif

// Replace the arguments on the stack by the results; `shown` of them where callers see fewer.
inline void give(torch::jit::Stack* stack, size_t arguments, Values& out, size_t wanted, size_t shown, const char* op) {
  TORCH_CHECK(out.size() == wanted, op, " returned ", out.size(), " results; the schema has ", wanted);
  torch::jit::drop(*stack, arguments);
  for (size_t i = 0; i < shown; ++i) stack->push_back(std::move(out[i]));
}

#ifdef WB_LIVE
inline std::unique_ptr<torch::Library> library;
inline std::string reply;
#endif

}  // namespace wb

#ifdef WB_LIVE
#define WB_EXPORT extern "C" __attribute__((visibility("default")))
#define WB_FULL_MODULE(ns, key, ...)                                                                              \
  WB_EXPORT void wb_ask_layout(int always) { wb::ask_always = always != 0; }                                      \
  WB_ARRIVALS                                                                                                     \
  WB_EXPORT const char* wb_unregister() { return wb::library.reset(), nullptr; }                                  \
  WB_EXPORT const char* wb_register() {                                                                           \
    if (wb::library) return nullptr;                                                                              \
    try {                                                                                                         \
      wb::library = std::make_unique<torch::Library>(torch::Library::IMPL, ns, c10::DispatchKey::key, "cell", 1); \
      auto& m = *wb::library;                                                                                     \
      __VA_ARGS__                                                                                                 \
    } catch (const std::exception& error) {                                                                       \
      wb::library.reset();                                                                                        \
      wb::reply = error.what();                                                                                   \
      return wb::reply.c_str();                                                                                   \
    }                                                                                                             \
    return nullptr;                                                                                               \
  }
#endif
