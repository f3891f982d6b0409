// Stands in for CUDA's bfloat16 header: storage and conversions, no arithmetic and no implicit conversion,
// so that emitted sources say where they round.
#pragma once

#include "emulate_math.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

inline float __bfloat162float(__nv_bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // the one NaN that a GPU returns
  // Just under half a unit rounds everything but ties; the kept part's last bit sends ties to even. A carry
  // runs into the exponent, which is right, up to infinity.
  bits += 0x7fffu + (bits >> 16 & 1u);
  return {static_cast<unsigned short>(bits >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float value) { return __float2bfloat16_rn(value); }
