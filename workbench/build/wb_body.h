// What every raw C++ kernel has without including it: fixed-width integers, limits, INFINITY. No std header: those cost.
#pragma once
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

// For a look inside: what a kernel prints shows under its cell. <stdio.h> would cost each build 10 ms.
extern "C" int printf(const char* format, ...) __attribute__((format(printf, 1, 2)));

#ifndef INFINITY
#define INFINITY (__builtin_inff ())
#endif
#ifndef NAN
#define NAN (__builtin_nanf (""))
#endif

// One named value as the launcher hands it over, and whether an integer fits a narrower C type.
union wb_value {
  int64_t i;
  double f;
  void* p;
};
template <typename T> constexpr bool wb_fits(int64_t v) {
  return static_cast<int64_t>(static_cast<T>(v)) == v && (v < 0) == (static_cast<T>(v) < static_cast<T>(0));
}
