// bfloat16: storage for the upper half of a float; arithmetic is in float. Rounds to nearest, ties to even.
#pragma once
#include <stdint.h>

struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  template <typename N> bfloat16(N number) : bits(round(static_cast<float>(number))) {}
  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float f;
    __builtin_memcpy(&f, &wide, sizeof f);
    return f;
  }
  template <typename N> bfloat16& operator+=(N v) { return *this = bfloat16(float(*this) + float(v)); }
  template <typename N> bfloat16& operator-=(N v) { return *this = bfloat16(float(*this) - float(v)); }
  template <typename N> bfloat16& operator*=(N v) { return *this = bfloat16(float(*this) * float(v)); }
  template <typename N> bfloat16& operator/=(N v) { return *this = bfloat16(float(*this) / float(v)); }

 private:
  static uint16_t round(float f) {
    uint32_t wide;
    __builtin_memcpy(&wide, &f, sizeof f);
    if (f != f) return static_cast<uint16_t>((wide >> 16) | 0x40);  // stays NaN
    return static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
  }
};
