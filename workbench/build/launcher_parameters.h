// A named value as a kernel's parameter: converted to its C type, with the same rules as a C++ body's.
#pragma once

namespace wb {

// The nearest number with these bits of exponent and mantissa, ties to even. What is too large becomes `most`, which is
// the code of infinity, or of the largest number for types that have none or whose conversion stops there.
inline uint32_t narrow(double v, int exponent_bits, int mantissa_bits, uint32_t most, uint32_t nan) {
  const uint32_t sign = __builtin_signbit(v) ? 1u << (exponent_bits + mantissa_bits) : 0;
  const double a = __builtin_fabs(v);
  if (!(a == a)) return nan | sign;
  if (a > 1e300) return most | sign;
  const int bias = (1 << (exponent_bits - 1)) - 1, smallest = 1 - bias;
  int exponent = a == 0 ? smallest : __builtin_ilogb(a);
  if (exponent < smallest) exponent = smallest;
  const auto units = static_cast<int64_t>(__builtin_rint(__builtin_ldexp(a, mantissa_bits - exponent)));
  const int64_t code = (int64_t(exponent - smallest) << mantissa_bits) + units;  // a carry moves the exponent by itself
  return (code > most ? most : static_cast<uint32_t>(code)) | sign;
}

template <typename T> inline bool put(int64_t v, Value& out) {
  const T t = static_cast<T>(v);
  memcpy(&out, &t, sizeof t);
  return static_cast<int64_t>(t) == v;
}

// False: the value does not fit.
inline bool pack(const Parameter& p, const Value& v, Value& out) {
  enum { POINTER, FLOAT32, FLOAT64, BOOL8, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, HALF, BFLOAT16, E4M3, E5M2 };
  switch (p.type) {
    case POINTER: case INT64: out = v; return true;
    case INT32: return put<int32_t>(v.i, out);
    case FLOAT32: {
      const float x = p.from_float ? static_cast<float>(v.f) : static_cast<float>(v.i);
      memcpy(&out, &x, sizeof x);
      return true;
    }
    case FLOAT64: out.f = p.from_float ? v.f : static_cast<double>(v.i); return true;
    case BOOL8: return put<uint8_t>(v.i, out) && v.i < 2;
    case INT8: return put<int8_t>(v.i, out);
    case UINT8: return put<uint8_t>(v.i, out);
    case INT16: return put<int16_t>(v.i, out);
    case UINT16: return put<uint16_t>(v.i, out);
    case UINT32: return put<uint32_t>(v.i, out);
    case UINT64: out = v; return v.i >= 0;
    default: {
      const double x = p.from_float ? v.f : static_cast<double>(v.i);
      const uint32_t code = p.type == HALF ? narrow(x, 5, 10, 0x7c00, 0x7e00)
                            : p.type == BFLOAT16 ? narrow(x, 8, 7, 0x7f80, 0x7fc0)
                            : p.type == E4M3 ? narrow(x, 4, 3, 0x7e, 0x7f) : narrow(x, 5, 2, 0x7b, 0x7e);
      memcpy(&out, &code, sizeof code);
      return true;
    }
  }
}

}  // namespace wb
