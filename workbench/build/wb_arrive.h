// Dtypes that arrive at a call for the first time: the notebook tries the function with them before it is called here.
// A function on tensors takes any dtype and may be wrong for some; what was asked about once is remembered by its hash.
#pragma once
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#ifndef WB_PART  // see wb_host.h
#define WB_PART inline
#endif

namespace wb {

inline int (*miss)(const int8_t* dtypes, int32_t count) = nullptr;  // 0: tried, go on
inline std::atomic<uint64_t> tried[32];
inline thread_local std::string refusal;  // what `miss` said, in the thread that asks

struct Arrival {
  int8_t codes[256];
  int32_t count = 0;
  uint64_t hash = 1469598103934665603u;  // FNV-1a
  void mix(int8_t code) { hash = (hash ^ static_cast<uint8_t>(code)) * 1099511628211u; }
  void add(int8_t code) {
    mix(code);
    if (count < 256) codes[count++] = code;
  }
};
__attribute__((cold)) WB_PART void ask_about(const Arrival& a, std::atomic<uint64_t>& place);
WB_PART void refused_since(const char* text);
inline void look_up(const Arrival& a) {
  for (std::atomic<uint64_t>& place : tried) {
    const uint64_t known = place.load(std::memory_order_relaxed);
    if (__builtin_expect(known == a.hash, 1)) return;
    if (!known) return ask_about(a, place);
  }
  ask_about(a, tried[a.hash % 32]);
}
#ifndef WB_APART
WB_PART void ask_about(const Arrival& a, std::atomic<uint64_t>& place) {
  if (miss(a.codes, a.count) != 0) throw std::runtime_error(refusal);
  place.store(a.hash, std::memory_order_relaxed);
}
WB_PART void refused_since(const char* text) { refusal = text; }
#endif

}  // namespace wb

#define WB_ARRIVALS                                                               \
  WB_EXPORT void wb_hook_miss(int (*f)(const int8_t*, int32_t)) { wb::miss = f; } \
  WB_EXPORT void wb_set_message(const char* text) { wb::refused_since(text); }
