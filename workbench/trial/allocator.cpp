// A CPU allocator for the child: what C++ code under trial allocates through torch comes from `ask`, which gives memory
// between guard pages, full of poison. Only torch's allocator interface is used.
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_set>

namespace {

using Ask = void* (*)(int64_t bytes);
std::atomic<Ask> ask{nullptr};
c10::Allocator* usual = nullptr;
uint32_t poison = 0;

void keep(void*) {}  // guarded memory lives until the process ends: what is written after a free is seen, too

std::mutex mutex;
std::unordered_set<void*> given;  // what is guarded: a raw pointer comes back alone

void release(void* memory) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (given.count(memory)) return;
  }
  if (const c10::DeleterFnPtr free = usual->raw_deleter()) free(memory);
}

struct Guarded final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const Ask asked = ask.load(std::memory_order_acquire);
    if (!asked || !bytes) return usual->allocate(bytes);
    if (void* memory = asked(static_cast<int64_t>(bytes))) {
      const std::lock_guard<std::mutex> lock(mutex);
      given.insert(memory);
      return {memory, memory, &keep, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DataPtr made = usual->allocate(bytes);  // beyond what is guarded
    auto* to = static_cast<char*>(made.get());
    std::fill_n(reinterpret_cast<uint32_t*>(to), bytes / 4, poison);
    memcpy(to + bytes / 4 * 4, &poison, bytes % 4);
    return made;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }  // matrix products take and give raw pointers
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};
Guarded guarded;

}  // namespace

// From now on allocations ask `f`; null: torch allocates as ever. `pattern` is what fresh memory is full of.
extern "C" __attribute__((visibility("default"))) void wb_guard(Ask f, uint32_t pattern) {
  if (!usual) {
    usual = c10::GetCPUAllocator();
    poison = pattern;
    c10::SetCPUAllocator(&guarded, 255);
  }
  ask.store(f, std::memory_order_release);
}
