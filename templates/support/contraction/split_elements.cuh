// What splitting by rows and splitting by columns share: elements, their exponents, their pieces.
#pragma once

#include <cstdint>

#include "pieces.cuh"

namespace fusegen {

// What warps reduce: exponents, and counts, whose sum stays in 32 bits.
struct LargestExponent {
  template <typename Acc>
  static __device__ __forceinline__ Acc identity() {
    return kNoExponent;
  }
  static __device__ __forceinline__ int combine(int a, int b) { return max(a, b); }
};
struct AddLost {
  template <typename Acc>
  static __device__ __forceinline__ Acc identity() {
    return 0;
  }
  static __device__ __forceinline__ unsigned combine(unsigned a, unsigned b) {
    return min(a + b, kNotFinite);
  }
};

// Four neighbouring elements of a row, zero beyond its end. aligned: whether rows begin at 16 bytes
// and have a multiple of four elements.
__device__ __forceinline__ float4 load_four(
    const float* row, int64_t column, int64_t columns, bool aligned) {
  if (aligned) return __ldg(reinterpret_cast<const float4*>(row + column));
  const auto at = [&](int64_t i) { return column + i < columns ? __ldg(row + column + i) : 0.0f; };
  return make_float4(at(0), at(1), at(2), at(3));
}

__device__ __forceinline__ unsigned word_of(__half first, __half second) {
  return unsigned(__half_as_ushort(first)) | unsigned(__half_as_ushort(second)) << 16;
}

__device__ __forceinline__ void store_four(const Pieces& to, int64_t at, const Split (&s)[4]) {
  *reinterpret_cast<uint2*>(to.high + at) =
      make_uint2(word_of(s[0].high, s[1].high), word_of(s[2].high, s[3].high));
  *reinterpret_cast<uint2*>(to.low + at) =
      make_uint2(word_of(s[0].low, s[1].low), word_of(s[2].low, s[3].low));
}

// The exponent by which elements are divided. folded: null, or what another matrix keeps of its
// rows. An element that meets a row of zeros is divided by more than any number has: it does not
// count for the exponent of its own row, which would else be its.
constexpr int kMeetsZeros = 1 << 20;
__device__ __forceinline__ int fold_by(int largest) {
  return largest <= kNoExponent ? kMeetsZeros : row_exponent(largest);
}
__device__ __forceinline__ int fold_of(const int* folded, int64_t index) {
  return folded == nullptr ? 0 : fold_by(__ldg(folded + index));
}

// Those of four neighbouring columns, which load_four() has the elements of.
__device__ __forceinline__ int4 load_folds(
    const int* folded, int64_t column, int64_t columns, bool aligned) {
  if (aligned) {
    const int4 four = __ldg(reinterpret_cast<const int4*>(folded + column));
    return make_int4(fold_by(four.x), fold_by(four.y), fold_by(four.z), fold_by(four.w));
  }
  const auto at = [&](int64_t i) { return column + i < columns ? fold_of(folded, column + i) : 0; };
  return make_int4(at(0), at(1), at(2), at(3));
}

__device__ __forceinline__ Split split_folded(float x, int exponent, int fold) {
  return split(fold == kMeetsZeros && is_finite(x) ? 0.0f : x, exponent - fold);
}

}  // namespace fusegen
