// What becomes of a product's elements: they are stored, or a chain goes on from them (tail.cuh).
//
// An epilogue has
//
//   tile(p, fragment, z)      the elements of a thread in a tile, where they are inside the product
//   element(p, i, j, z)       one element, which has been computed again
#pragma once

#include <cstdint>

#include "tiles.cuh"

namespace fusegen {

struct StoreProduct {
  __device__ __forceinline__ void tile(
      const Product& p, const Fragment& mine, const float (&z)[64]) const {
    const bool paired = p.columns % 2 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t i = mine.row(half);
      if (i >= p.rows) continue;
      float* const to = p.result + i * p.columns;
#pragma unroll
      for (int pair = 0; pair < Fragment::kPairs; ++pair) {
        const int j = mine.column(pair), at = Fragment::at(pair, half);
        if (j >= p.columns) continue;
        if (paired) {
          *reinterpret_cast<float2*>(to + j) = make_float2(z[at], z[at + 1]);
        } else {
          to[j] = z[at];
          if (j + 1 < p.columns) to[j + 1] = z[at + 1];
        }
      }
    }
  }
  __device__ __forceinline__ void element(
      const Product& p, int64_t i, int64_t j, float z) const {
    p.result[i * p.columns + j] = z;
  }
};

}  // namespace fusegen
