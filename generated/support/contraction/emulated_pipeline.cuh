// The sums of a tile on the emulator, which has no tensor cores: what pipeline.cuh does on a GPU.
//
// Terms are added in the order of the hardware's steps, in float32.
#pragma once

#include <cstdint>

#include "tiles.cuh"

namespace fusegen {

struct PieceMaps {
  Pieces left, right;
};

template <bool kLeftTransposed, bool kRightTransposed>
cudaError_t describe_pieces(const Operation& o, PieceMaps& maps) {
  maps = {o.left, o.right};
  return cudaSuccess;
}

template <bool kLeftTransposed, bool kRightTransposed>
class Pipeline {
 public:
  Pipeline(const PieceMaps& maps, const Product& p, Shared, int) : maps_(maps), p_(p) {}
  void end() {}
  void begin_producer() {}
  void begin_consumer() {}
  void copy(const TilePlace&) {}

  void accumulate(const TilePlace& at, int half, float (&sum)[64], float (&cross)[64]) {
    // As the PTX manual has the registers of wgmma's result.
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    for (int n = 0; n < 64; ++n) {
      const int64_t i = at.row + 64 * half + 16 * warp + lane / 4 + 8 * (n / 2 % 2);
      const int64_t j = at.column + n / 4 * 8 + lane % 4 * 2 + n % 2;
      sum[n] = cross[n] = 0;
      if (i >= p_.rows || j >= p_.columns) continue;
      for (int64_t first = 0; first < p_.sum; first += kPromoted) {
        float high = 0;
        for (int64_t step = first; step < first + kPromoted; step += 16) {
          cross[n] = add_step(maps_.left.low, i, maps_.right.high, j, step, cross[n]);
          cross[n] = add_step(maps_.left.high, i, maps_.right.low, j, step, cross[n]);
          high = add_step(maps_.left.high, i, maps_.right.high, j, step, high);
        }
        sum[n] += high;
      }
    }
  }

 private:
  // 16 terms; beyond the end of the sum there are none.
  float add_step(
      const __half* left, int64_t i, const __half* right, int64_t j, int64_t step,
      float sum) const {
    for (int64_t c = step; c < step + 16 && c < p_.sum; ++c) {
      const int64_t l = kLeftTransposed ? c * maps_.left.stride + i : i * maps_.left.stride + c;
      const int64_t r = kRightTransposed ? c * maps_.right.stride + j : j * maps_.right.stride + c;
      sum += __half2float(left[l]) * __half2float(right[r]);
    }
    return sum;
  }

  const PieceMaps& maps_;
  const Product& p_;
};

}  // namespace fusegen
