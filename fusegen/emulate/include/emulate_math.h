// Device functions that the C++ standard library lacks, in the global namespace as in CUDA.
#pragma once

#include <math.h>  // unlike <cmath>, also puts the float and double overloads into the global namespace

#include <cstring>

#include "emulate_types.h"

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

#define FUSEGEN_MIN_MAX(type)                                     \
  constexpr type min(type a, type b) { return b < a ? b : a; }    \
  constexpr type max(type a, type b) { return a < b ? b : a; }
FUSEGEN_MIN_MAX(int)
FUSEGEN_MIN_MAX(unsigned)
FUSEGEN_MIN_MAX(long)
FUSEGEN_MIN_MAX(unsigned long)
FUSEGEN_MIN_MAX(long long)
FUSEGEN_MIN_MAX(unsigned long long)
#undef FUSEGEN_MIN_MAX
// Of a number and a NaN these return the number, as CUDA's do.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

// A word out of two that follow each other; `bits` counts from the lower end, modulo 32.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return unsigned((std::uint64_t(high) << 32 | low) >> bits % 32);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned bits) {
  return unsigned((std::uint64_t(high) << 32 | low) << bits % 32 >> 32);
}

// Operations that a compiler must not contract; sources are compiled with -ffp-contract=off anyway.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }

namespace fusegen::emulate {
template <typename To, typename From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "the types differ in size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace fusegen::emulate

inline int __float_as_int(float x) { return fusegen::emulate::bit_cast<int>(x); }
inline float __int_as_float(int x) { return fusegen::emulate::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return fusegen::emulate::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return fusegen::emulate::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return fusegen::emulate::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return fusegen::emulate::bit_cast<double>(x); }

// Always inlined: a fault in one is its caller's, which messages name.
#define FUSEGEN_INLINED inline __attribute__((always_inline))
template <typename T>
FUSEGEN_INLINED T __ldg(const T* address) {
  return *address;
}
template <typename T>
FUSEGEN_INLINED T __ldcs(const T* address) {
  return *address;
}
template <typename T>
FUSEGEN_INLINED void __stcs(T* address, T value) {
  *address = value;
}
