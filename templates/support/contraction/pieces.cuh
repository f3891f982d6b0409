// The pieces of one float32 element, and of a matrix.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "contraction.h"

namespace fusegen {

// The largest finite element of a row gets this exponent: a factor of 2 below fp16's largest
// number.
constexpr int kTopExponent = 14;
// A low piece counts units of 2^-11 of the high one's: high pieces have 11 bits.
constexpr float kLowUnit = 0x1p-11f;
// Below this a low piece may be subnormal, so that the pieces hold less than float32's 24 bits.
constexpr float kHeldFrom = 0x1p-12f;
// What the pieces leave of an element that they do not hold, at most: half of the last place of a
// subnormal low piece.
constexpr float kLargestRest = 0x1p-36f;
// The count of a row with an infinity or a NaN, at least.
constexpr unsigned kNotFinite = 1u << 30;

// 2^n for -126 <= n <= 127.
__device__ __forceinline__ float power_of_two(int n) { return __int_as_float((n + 127) << 23); }

// x 2^n; a subnormal result may be rounded twice. n beyond 252 is taken as 252: every x would be
// too large or zero.
__device__ __forceinline__ float scaled(float x, int n) {
  const int bounded = max(-252, min(252, n));
  const int half = bounded / 2;
  return x * power_of_two(half) * power_of_two(bounded - half);
}

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// floor(log2(|x|)) of a finite x; kNoExponent for 0.
constexpr int kNoExponent = -100000;
__device__ __forceinline__ int exponent_of(float x) {
  const int bits = __float_as_int(x) & 0x7fffffff;
  if (bits == 0) return kNoExponent;
  if (bits >= 0x00800000) return (bits >> 23) - 127;
  return ((__float_as_int(x * 0x1p32f) & 0x7fffffff) >> 23) - 127 - 32;  // subnormal
}

// The exponent e of a row whose largest finite element has `largest`, which is what is kept of it.
// Of a row of zeros that is a number below all exponents.
__device__ __forceinline__ int row_exponent(int largest) {
  return largest <= kNoExponent ? 0 : kTopExponent - largest;
}

struct Split {
  __half high, low;
  unsigned lost;  // 0 if the pieces hold the element, 1 if not, kNotFinite for infinity and NaN
};

// Of x 2^n.
__device__ __forceinline__ Split split(float x, int n) {
  if (!is_finite(x)) return {__float2half_rn(0.0f), __float2half_rn(0.0f), kNotFinite};
  const float whole = scaled(x, n);
  const __half high = __float2half_rn(whole);
  const __half low = __float2half_rn((whole - __half2float(high)) / kLowUnit);
  if (fabsf(whole) >= kHeldFrom) return {high, low, 0};
  const float held = __half2float(high) + __half2float(low) * kLowUnit;
  const bool exact = held == whole && (whole != 0 || x == 0);
  return {high, low, exact ? 0u : 1u};
}

// Where the parts of a matrix's pieces are.
struct Pieces {
  __half *high, *low;
  int* largest;    // the exponent of each row's (or column's) largest finite element
  unsigned* lost;  // how many elements of each the pieces do not hold
  unsigned long long* lost_in_all;
  int64_t stride;
};

inline Pieces pieces_of(const void* data, const PiecesLayout& layout) {
  __half* const high = static_cast<__half*>(const_cast<void*>(data));
  __half* const low = high + layout.plane();
  int* const largest = reinterpret_cast<int*>(low + layout.plane());
  unsigned* const lost = reinterpret_cast<unsigned*>(largest + layout.scales());
  const auto all = reinterpret_cast<unsigned long long*>(lost + layout.scales());
  return {high, low, largest, lost, all, layout.stride()};
}

}  // namespace fusegen
