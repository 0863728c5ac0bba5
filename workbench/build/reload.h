// Library blocks that can be taken back. Included after torch/library.h and before the user's text, whose TORCH_LIBRARY
// blocks then run when `wb_register` is called, not when the object is loaded, and end with `wb_unregister`.
//
// A TORCH_LIBRARY block becomes a fragment: torch allows one of a namespace in a process, and a cell is run again.
#pragma once
#include <torch/library.h>

#include "reload_class.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

// Hidden, so that all sources of one shared object share it and no two objects do.
namespace wb_reload __attribute__((visibility("hidden"))) {

// torch's entry of a name never dies here, and it remembers the C++ types of the first kernel that it was given: a kernel
// with other types, of a changed schema, would be refused. So kernels come without theirs. (The member is private.)
struct SignatureOf {
  using type = std::optional<c10::impl::CppSignature> torch::CppFunction::*;
  friend type member(SignatureOf);
};
template <typename Tag, typename Tag::type M> struct Open {
  friend typename Tag::type member(Tag) { return M; }
};
template struct Open<SignatureOf, &torch::CppFunction::cpp_signature_>;
template <typename F> torch::CppFunction bare(F&& f) {
  torch::CppFunction made(std::forward<F>(f));
  made.*member(SignatureOf()) = std::nullopt;
  return made;
}

// What a block is handed: torch's own library, which nobody may derive from.
class Library {
  using Tags = std::vector<at::Tag>;
  using Mode = torch::_RegisterOrVerify;
  torch::Library of_torch;
  std::string ns;

 public:
  std::vector<OfBuild> shown;  // the classes of the block
  Library(torch::Library::Kind kind, const char* space, std::optional<c10::DispatchKey> key, const char* file, uint32_t line)
      : of_torch(kind, space, key, file, line), ns(space) {}
  operator torch::Library&() { return of_torch; }

  Library& def(c10::FunctionSchema&& s, const Tags& tags = {}, Mode mode = Mode::REGISTER) {
    return of_torch.def(std::move(s), tags, mode), *this;
  }
  Library& def(const char* s, const Tags& tags = {}, Mode mode = Mode::REGISTER) { return of_torch.def(s, tags, mode), *this; }
  template <bool B> Library& def(torch::detail::SelectiveStr<B> s, const Tags& tags = {}) { return of_torch.def(s, tags), *this; }
  template <typename N, typename F> Library& def(N&& name, F&& f, const Tags& tags = {}) {
    return of_torch.def(std::forward<N>(name), bare(std::forward<F>(f)), tags), *this;
  }
  template <typename N, typename F> Library& impl(N name, F&& f, Mode mode = Mode::REGISTER) {
    if (mode == Mode::REGISTER) of_torch.impl(name, bare(std::forward<F>(f)));
    return *this;
  }
  template <typename N, typename Dispatch, typename F> Library& impl(N name, Dispatch&& key, F&& f) {
    return impl(name, torch::dispatch(std::forward<Dispatch>(key), std::forward<F>(f)));
  }
  template <typename F> Library& fallback(F&& f) { return of_torch.fallback(std::forward<F>(f)), *this; }
  template <typename C> torch::class_<C> class_(const std::string& name) { return class_of<C>(ns, name, shown); }
  template <typename C> torch::class_<C> class_(torch::detail::SelectiveStr<true> name) { return class_<C>(std::string(name.operator const char*())); }
  template <typename C> torch::class_<C> wb_class_(const std::string& name) { return class_<C>(name); }  // see reload_python.h
  Library& set_python_module(const char* module, const char* context = "") {
    return of_torch.set_python_module(module, context), *this;
  }
  Library& impl_abstract_pystub(const char* module, const char* context = "") { return set_python_module(module, context); }
};

struct Block {
  torch::Library::Kind kind;
  void (*fill)(Library&);
  const char* ns;
  std::optional<c10::DispatchKey> key;
  const char* file;
  uint32_t line;
};
inline std::vector<Block>& blocks() {
  static std::vector<Block> all;
  return all;
}
struct Add {
  explicit Add(const Block& block) { blocks().push_back(block); }
};

}  // namespace wb_reload

#undef TORCH_LIBRARY
#undef TORCH_LIBRARY_FRAGMENT
#undef _TORCH_LIBRARY_FRAGMENT
#undef TORCH_LIBRARY_IMPL
#undef _TORCH_LIBRARY_IMPL
#define WB_BLOCK(kind, ns, key, m, uid)                                                             \
  static void C10_CONCATENATE(wb_block_, uid)(wb_reload::Library&);                                   \
  static const wb_reload::Add C10_CONCATENATE(wb_add_, uid)(                                        \
      {torch::Library::kind, &C10_CONCATENATE(wb_block_, uid), C10_STRINGIZE(ns), key, __FILE__, __LINE__}); \
  static void C10_CONCATENATE(wb_block_, uid)(wb_reload::Library & m)
#define TORCH_LIBRARY(ns, m) WB_BLOCK(DEF, ns, std::nullopt, m, C10_UID)
#define _TORCH_LIBRARY_FRAGMENT(ns, m, uid) WB_BLOCK(FRAGMENT, ns, std::nullopt, m, uid)
#define TORCH_LIBRARY_FRAGMENT(ns, m) WB_BLOCK(FRAGMENT, ns, std::nullopt, m, C10_UID)
#define _TORCH_LIBRARY_IMPL(ns, k, m, uid) WB_BLOCK(IMPL, ns, std::make_optional(c10::DispatchKey::k), m, uid)
#define TORCH_LIBRARY_IMPL(ns, k, m) WB_BLOCK(IMPL, ns, std::make_optional(c10::DispatchKey::k), m, C10_UID)
