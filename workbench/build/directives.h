// What the expressions of directives mean in C++: Python's rules for integers, floats, shapes and None.
//
// Integers are int64_t and never wrap: overflow and division by zero are errors that name the directive.
#pragma once
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <exception>
#include <type_traits>

namespace wb {

constexpr int MAX_DIM = 64;

// A growing text of bounded length: error messages are built without the cost of <string>.
struct Message {
  char text[2048];
  int length = 0;
  Message() { text[0] = 0; }
  __attribute__((format(printf, 2, 3))) Message& add(const char* format, ...) {
    va_list list;
    va_start(list, format);
    add_list(format, list);
    va_end(list);
    return *this;
  }
  void add_list(const char* format, va_list list) {
    const int room = static_cast<int>(sizeof text) - length;
    const int wanted = vsnprintf(text + length, static_cast<size_t>(room), format, list);
    length += wanted < 0 ? 0 : wanted < room ? wanted : room - 1;
  }
};

// An error with all its context; torch turns it into a RuntimeError.
struct Error : std::exception {
  Message message;
  explicit Error(const Message& m) : message(m) {}
  const char* what() const noexcept override { return message.text; }
};

// An error inside a directive; `run` adds the op, the directive and its line.
struct Problem {
  Message message;
};

[[noreturn]] __attribute__((noinline, cold, format(printf, 1, 2))) inline void problem(const char* format, ...) {
  Problem p;
  va_list list;
  va_start(list, format);
  p.message.add_list(format, list);
  va_end(list);
  throw p;
}

// ---- dtypes: torch's codes ------------------------------------------------------------------------------------------
enum Dtype : int32_t {
  uint8 = 0, int8 = 1, int16 = 2, int32 = 3, int64 = 4, float16 = 5, float32 = 6, float64 = 7, complex32 = 8,
  complex64 = 9, complex128 = 10, bool_ = 11, bfloat16 = 15, float8_e5m2 = 23, float8_e4m3fn = 24,
  float8_e5m2fnuz = 25, float8_e4m3fnuz = 26, uint16 = 27, uint32 = 28, uint64 = 29, no_dtype = -1
};

inline const char* dtype_name(int32_t code) {
  static const char* const names[] = {
      "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
      "complex128", "bool", "qint8", "qint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8", "bits2x4",
      "bits4x2", "bits8", "bits16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16",
      "uint32", "uint64"};
  return code < 0 ? "None" : code < 30 ? names[code] : "another dtype";
}

constexpr int64_t element_size(int32_t dtype) {
  switch (dtype) {
    case int16: case uint16: case float16: case bfloat16: return 2;
    case int32: case uint32: case float32: case complex32: return 4;
    case int64: case uint64: case float64: case complex64: return 8;
    case complex128: return 16;
    default: return 1;
  }
}

// ---- shapes ---------------------------------------------------------------------------------------------------------
// A borrowed row of integers: a shape, strides, or a slice of them.
struct Span {
  const int64_t* data;
  int64_t size;

  int64_t at(int64_t i) const {
    const int64_t k = i < 0 ? i + size : i;
    if (k < 0 || k >= size)
      problem("index %lld is out of range for %lld dimension%s", (long long)i, (long long)size, size == 1 ? "" : "s");
    return data[k];
  }
  Span slice(int64_t from, int64_t to) const {
    const auto clamp = [this](int64_t i) { i = i < 0 ? i + size : i; return i < 0 ? 0 : i > size ? size : i; };
    const int64_t a = clamp(from), b = clamp(to);
    return {data + a, b > a ? b - a : 0};
  }
  Span from(int64_t i) const { return slice(i, size); }
};

// An owned row of integers, put together from integers and spans: `(*x.shape[:-1], k)`.
struct Dims {
  int64_t data[MAX_DIM];
  int64_t size = 0;
  template <typename... Parts> explicit Dims(const Parts&... parts) { (add(parts), ...); }
  void add(int64_t n) {
    if (size == MAX_DIM) problem("more than %d dimensions", MAX_DIM);
    data[size++] = n;
  }
  void add(Span s) { for (int64_t i = 0; i < s.size; ++i) add(s.data[i]); }
  operator Span() const { return {data, size}; }
};

inline bool equal(Span a, Span b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, sizeof(int64_t) * static_cast<size_t>(a.size)) == 0);
}

// The values of `a, *_, b = span`: `before` names on the left of the star, `after` on its right.
inline Span unpack(const char* name, Span s, int64_t before, int64_t after, bool star) {
  const int64_t wanted = before + after;
  if (star ? s.size < wanted : s.size != wanted)
    problem("%s has %lld dimension%s, needs %s%lld", name, (long long)s.size, s.size == 1 ? "" : "s",
            star ? "at least " : "", (long long)wanted);
  return s;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------
template <typename A, typename B> constexpr bool integers = std::is_integral_v<A> && std::is_integral_v<B>;

template <typename A, typename B> inline auto add(A a, B b) {
  if constexpr (integers<A, B>) {
    int64_t r;
    if (__builtin_add_overflow((int64_t)a, (int64_t)b, &r)) problem("integer overflow in %lld + %lld", (long long)a, (long long)b);
    return r;
  } else return double(a) + double(b);
}
template <typename A, typename B> inline auto sub(A a, B b) {
  if constexpr (integers<A, B>) {
    int64_t r;
    if (__builtin_sub_overflow((int64_t)a, (int64_t)b, &r)) problem("integer overflow in %lld - %lld", (long long)a, (long long)b);
    return r;
  } else return double(a) - double(b);
}
template <typename A, typename B> inline auto mul(A a, B b) {
  if constexpr (integers<A, B>) {
    int64_t r;
    if (__builtin_mul_overflow((int64_t)a, (int64_t)b, &r)) problem("integer overflow in %lld * %lld", (long long)a, (long long)b);
    return r;
  } else return double(a) * double(b);
}
template <typename A> inline auto neg(A a) { return sub(A(0), a); }
inline double neg(double a) { return -a; }

inline double div(double a, double b) {
  if (b == 0) problem("division by zero");
  return a / b;
}
inline int64_t floordiv(int64_t a, int64_t b) {  // of integers alone, as mod: the language has them for no floats
  if (b == 0) problem("division by zero");
  if (b == -1) return sub(int64_t(0), a);  // the one quotient that may overflow
  const int64_t q = a / b, r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
inline int64_t mod(int64_t a, int64_t b) {
  if (b == 0) problem("division by zero");
  const int64_t r = b == -1 ? 0 : a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
inline int64_t cdiv(int64_t a, int64_t b) { return neg(floordiv(neg(a), b)); }
inline int64_t next_power_of_2(int64_t n) {
  if (n > (int64_t(1) << 62)) problem("integer overflow in next_power_of_2(%lld)", (long long)n);
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}
inline double sqrt(double a) {
  if (a < 0) problem("square root of a negative number, %g", a);
  return __builtin_sqrt(a);
}
inline int64_t prod(Span s) {
  int64_t p = 1;
  for (int64_t i = 0; i < s.size; ++i) p = mul(p, s.data[i]);
  return p;
}
template <typename A> inline A min(A a) { return a; }
template <typename A> inline A max(A a) { return a; }
template <typename A, typename B, typename... C> inline auto min(A a, B b, C... c) {
  using T = std::common_type_t<A, B>;
  return min(T(b) < T(a) ? T(b) : T(a), c...);
}
template <typename A, typename B, typename... C> inline auto max(A a, B b, C... c) {
  using T = std::common_type_t<A, B>;
  return max(T(b) > T(a) ? T(b) : T(a), c...);
}

// ---- values in messages ---------------------------------------------------------------------------------------------
inline void show(Message& m, int64_t v) { m.add("%lld", (long long)v); }
inline void show(Message& m, double v) { m.add("%.9g", v); }
inline void show(Message& m, bool v) { m.add(v ? "True" : "False"); }
inline void show(Message& m, Dtype v) { m.add("%s", dtype_name(v)); }
inline void show(Message& m, Span s) {
  m.add("(");
  for (int64_t i = 0; i < s.size; ++i) m.add(i ? ", %lld" : "%lld", (long long)s.data[i]);
  m.add(s.size == 1 ? ",)" : ")");
}
template <typename T> struct Maybe { bool none; T value; };
template <typename T> inline Maybe<T> maybe(bool none, T value) { return {none, value}; }
template <typename T> inline void show(Message& m, const Maybe<T>& v) {
  if (v.none) m.add("None");
  else show(m, v.value);
}

}  // namespace wb
