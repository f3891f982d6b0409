// Stands in for CUDA's half precision header: storage and conversions, no arithmetic and no implicit
// conversion, so that emitted sources say where they round.
#pragma once

#include "emulate_math.h"

struct __half {
  unsigned short bits;
};

inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

inline float __half2float(__half value) {
  const unsigned sign = static_cast<unsigned>(value.bits & 0x8000u) << 16;
  const unsigned magnitude = value.bits & 0x7fffu;
  if (magnitude < 0x0400u) {  // zero or subnormal: an integer times 2^-24, exact in float
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(magnitude) * 0x1p-24f));
  }
  // Infinity and NaN have the largest exponent in both formats; others move by the biases' difference.
  const unsigned rebias = magnitude >= 0x7c00u ? (255u - 31u) << 23 : (127u - 15u) << 23;
  return __uint_as_float(sign | ((magnitude << 13) + rebias));
}

inline __half __float2half_rn(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned sign = bits >> 16 & 0x8000u;
  const unsigned magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};  // the one NaN that a GPU returns
  unsigned half;
  if (magnitude >= 0x477ff000u) {  // 65520, halfway between the largest number and what would follow it
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14, the smallest normal number
    // Adding 0.5, whose last bit counts 2^-24, makes the float addition itself round to a multiple of that.
    half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - __float_as_uint(0.5f);
  } else {
    // As for bfloat16: just under half a unit, and the kept part's last bit sends ties to even.
    half = (magnitude - ((127u - 15u) << 23) + 0x0fffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<unsigned short>(sign | half)};
}
inline __half __float2half(float value) { return __float2half_rn(value); }
