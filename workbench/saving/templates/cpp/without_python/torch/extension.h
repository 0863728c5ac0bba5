// torch/extension.h without Python, which a library of ops does not call: one wheel then serves every Python.
#pragma once
#include <torch/all.h>

#ifdef HOST_CODE_PYBIND  // a PYBIND11_MODULE block, which is left out, may still name these
#define PYBIND11_MODULE(name, m) \
  template <typename HostCodeModule> [[maybe_unused]] static void host_code_module_left_out([[maybe_unused]] HostCodeModule& m)
namespace pybind11 {
struct arg {
  explicit arg(const char*) {}
  arg noconvert(bool = true) const { return *this; }
  template <typename T> const arg& operator=(T&&) const { return *this; }
};
struct none {};
struct gil_scoped_release {};
template <typename...> struct call_guard {};
namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals
}  // namespace pybind11
namespace py = pybind11;
namespace torch {
template <typename F> F wrap_pybind_function(F&& f) { return static_cast<F&&>(f); }
template <typename F> F wrap_pybind_function_no_gil(F&& f) { return static_cast<F&&>(f); }
}  // namespace torch
#endif
