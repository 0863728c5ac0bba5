// For kernels that include the standard library's containers, algorithms or intrinsics themselves: parsed once and
// precompiled, these cost a tenth of what they cost in every cell. It adds no names that such a cell would not have.
#pragma once
#include "wb_body_math.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
