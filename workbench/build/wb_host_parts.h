// What wb_host.h declares and no template needs.
#pragma once
#include "wb_host.h"

namespace wb {

WB_PART void torch_failed(const char* call) {
  const char* why = torch_exception_get_what_without_backtrace ? torch_exception_get_what_without_backtrace() : nullptr;
  if (why && *why) throw std::runtime_error(why);
  std::string what = call;  // torch_call_dispatcher("aten::clone", ...: the op says more than the rest
  const size_t from = what.find('"'), to = from == std::string::npos ? from : what.find('"', from + 1);
  what = to == std::string::npos ? what.substr(0, what.find('(')) : what.substr(from + 1, to - from - 1);
  throw std::runtime_error(what + " failed; torch wrote the reason to the error output");
}

WB_PART void unfit(double value, const char* what, const char* as) {
  unmet("", what, " = ", value, " does not fit the parameter `", as, '`');
}
WB_PART void unfit(int64_t value, const char* what, const char* as) {
  unmet("", what, " = ", value, " does not fit the parameter `", as, '`');
}

WB_PART void restride(Tensor& got, StableIValue wanted) {
  Tensor like(reinterpret_cast<AtenTensorHandle>(wanted));
  if (!got.defined() || !like.defined() || got.dim() != like.dim() || got.scalar_type() != like.scalar_type()) return;
  bool same = true;
  for (int64_t d = 0; d < got.dim(); ++d) {
    if (got.size(d) != like.size(d)) return;  // the trial tells shapes apart
    same = same && (got.size(d) < 2 || got.stride(d) == like.stride(d));
  }
  if (same) return;
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(like.get(), got.get(), 0));
  got = like;
}

#ifdef WB_LIVE
inline std::string reply;
WB_PART void open_library(const char* space, const char* key) { library = new StableLibrary(StableLibrary::Kind::IMPL, space, key, "cell", 1); }
WB_PART const char* close_library() { return delete std::exchange(library, nullptr), nullptr; }
WB_PART const char* failed_library(const char* why) {
  close_library();
  reply = why;
  return reply.c_str();
}
#endif

}  // namespace wb
