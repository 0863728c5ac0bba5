// reload.h for text with a PYBIND11_MODULE. A class is the module's own: the next build of a re-run cell brings another
// C++ class of the same name, which pybind11 refuses to know twice.
#pragma once
#include "reload.h"

#include <torch/csrc/utils/pybind.h>

namespace pybind11 {
template <typename T, typename... O> struct wb_class_ : class_<T, O...> {
  template <typename... E> wb_class_(handle scope, const char* name, const E&... extra)
      : class_<T, O...>(scope, name, module_local(), extra...) {}
};
}  // namespace pybind11
#define class_ wb_class_
