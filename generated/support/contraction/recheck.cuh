// Makes good what pieces do not hold, element by element of a product.
//
// An element of a matrix that is below 2^-26 of the largest of its row loses up to 2^-36 in the
// units of its pieces, and those of the other operand are at most 2^15. So an element of the
// product is off by at most n 2^-21 where n elements of its row or column were lost (of the whole
// operand, where its rows belong to the terms of the sum): less than the
// rounding of float32 in nearly all cases, and where it may be more, or there is an infinity or a
// NaN, the element is computed again in float32. The host never waits to know whether there are
// any.
#pragma once

#include <cstdint>

#include "../launch.cuh"
#include "../reduce_lanes.cuh"
#include "../thread_positions.cuh"
#include "product.cuh"

namespace fusegen {

constexpr int kRecheckThreads = 256;
constexpr int kRecheckWarps = kRecheckThreads / 32;
constexpr int kRecheckTile = 64;   // rows and columns
constexpr int kRecheckDepth = 16;  // of the sum, in shared memory at a time
constexpr int kRecheckPad = kRecheckTile + 1;
constexpr unsigned kRecheckSparse = 512;  // elements of a tile that warps compute one by one
// An element is good to 2^-22 of itself where it is at least this for each lost element.
constexpr float kGoodFrom = 2.0f;

__device__ __forceinline__ bool is_doubtful(const Product& p, int64_t i, int64_t j, float value) {
  const unsigned long long left = __ldg(p.left_lost + i);
  const unsigned long long right =
      p.right_lost == nullptr ? *p.right_lost_in_all : __ldg(p.right_lost + j);
  const unsigned long long lost = left + right;
  if (lost == 0) return false;
  if (lost >= kNotFinite) return true;
  return !(fabsf(scaled(value, p.exponent(i, j))) >= kGoodFrom * float(lost));
}

// Element (i, j) in float32, for a whole warp; lanes add in a fixed order.
__device__ __forceinline__ float recomputed_element(const Product& p, int64_t i, int64_t j) {
  const int lane = threadIdx.x % 32;
  const float* const left = p.left + i * p.left_row;
  const float* const right = p.right + j * p.right_row;
  float sum = 0;
#pragma unroll 4
  for (int64_t c = lane; c < p.sum; c += 32) {
    sum = fmaf(__ldg(left + c * p.left_sum), __ldg(right + c * p.right_sum), sum);
  }
  sum_in_warp(32, sum);
  return sum;
}

// A tile of `depth` of the sum: 64 rows of an operand, zero beyond its end.
__device__ __forceinline__ void load_recheck_tile(
    float* tile, const float* from, int64_t first, int64_t rows, int64_t sum_first, int64_t sum,
    int64_t row_stride, int64_t sum_stride) {
#pragma unroll
  for (int n = 0; n < kRecheckTile * kRecheckDepth / kRecheckThreads; ++n) {
    const int t = threadIdx.x + n * kRecheckThreads;
    // Neighbouring threads take what lies side by side.
    const int r = sum_stride == 1 ? t / kRecheckDepth : t % kRecheckTile;
    const int c = sum_stride == 1 ? t % kRecheckDepth : t / kRecheckTile;
    const bool inside = first + r < rows && sum_first + c < sum;
    const float* const at = from + (first + r) * row_stride + (sum_first + c) * sum_stride;
    tile[c * kRecheckPad + r] = inside ? __ldg(at) : 0.0f;
  }
}

// The doubtful elements of a tile at (i0, j0) that has many: all are computed, a thread has 4 x 4.
// finish(i, j, value) takes an element.
template <typename Doubtful, typename Finish>
__device__ __forceinline__ void recompute_tile(
    const Product& p, int64_t i0, int64_t j0, float* shared, const Doubtful& doubtful,
    const Finish& finish) {
  float* const left = shared;
  float* const right = left + kRecheckDepth * kRecheckPad;
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  constexpr int kEach = kRecheckTile / 16;
  constexpr int64_t kPromoted = 256;  // a partial sum has so many terms
  float total[kEach][kEach] = {};
  for (int64_t c0 = 0; c0 < p.sum; c0 += kPromoted) {
    float part[kEach][kEach] = {};
    for (int64_t c1 = c0; c1 < min(c0 + kPromoted, p.sum); c1 += kRecheckDepth) {
      __syncthreads();
      load_recheck_tile(left, p.left, i0, p.rows, c1, p.sum, p.left_row, p.left_sum);
      load_recheck_tile(right, p.right, j0, p.columns, c1, p.sum, p.right_row, p.right_sum);
      __syncthreads();
      for (int c = 0; c < kRecheckDepth; ++c) {
        if (c1 + c >= p.sum) break;  // an infinity times the padding would be NaN
#pragma unroll
        for (int a = 0; a < kEach; ++a) {
#pragma unroll
          for (int b = 0; b < kEach; ++b) {
            part[a][b] = fmaf(left[c * kRecheckPad + row + 16 * a],
                              right[c * kRecheckPad + column + 16 * b], part[a][b]);
          }
        }
      }
    }
#pragma unroll
    for (int a = 0; a < kEach; ++a) {
#pragma unroll
      for (int b = 0; b < kEach; ++b) total[a][b] += part[a][b];
    }
  }
#pragma unroll
  for (int a = 0; a < kEach; ++a) {
#pragma unroll
    for (int b = 0; b < kEach; ++b) {
      const int64_t i = i0 + row + 16 * a, j = j0 + column + 16 * b;
      if (i >= p.rows || j >= p.columns) continue;
      if (doubtful(i, j, p.result[i * p.columns + j])) finish(i, j, total[a][b]);
    }
  }
}

// Blocks walk over tiles of the result. Without lost elements they end at once. E: see
// epilogue.cuh.
template <class E>
__global__ void __launch_bounds__(kRecheckThreads)
    recheck_product(const __grid_constant__ Product p, const __grid_constant__ E epilogue) {
  wait_for_earlier_kernels();
  if (*p.left_lost_in_all == 0 && *p.right_lost_in_all == 0) return;
  float* const shared = shared_memory<float>();
  unsigned* const counts = reinterpret_cast<unsigned*>(shared + 2 * kRecheckDepth * kRecheckPad);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t across = (p.columns + kRecheckTile - 1) / kRecheckTile;
  const int64_t tiles = across * ((p.rows + kRecheckTile - 1) / kRecheckTile);
  const auto doubtful = [&](int64_t i, int64_t j, float x) { return is_doubtful(p, i, j, x); };
  const auto finish = [&](int64_t i, int64_t j, float z) { epilogue.element(p, i, j, z); };
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t i0 = tile / across * kRecheckTile, j0 = tile % across * kRecheckTile;
    // A diagonal order: the elements of one row, or of one column, are spread over all warps.
    const auto row_of = [&](int s, int l) { return i0 + l + 32 * (s % 2); };
    const auto column_of = [&](int s, int l) { return j0 + s / 2 * 8 + ((warp - l) & 7); };
    unsigned found = 0;  // a bit for each of this thread's 16 elements
#pragma unroll
    for (int s = 0; s < 16; ++s) {
      const int64_t i = row_of(s, lane), j = column_of(s, lane);
      if (i >= p.rows || j >= p.columns) continue;
      if (doubtful(i, j, p.result[i * p.columns + j])) found |= 1u << s;
    }
    unsigned count = __popc(found);
    sum_in_warp(32, count);
    __syncthreads();  // the tile before has been read
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    count = 0;
    for (int w = 0; w < kRecheckWarps; ++w) count += counts[w];
    // Both ways are as accurate, but have other bits, and a tile is of several rows.
    if (count > kRecheckSparse && !p.row_invariant) {
      recompute_tile(p, i0, j0, shared, doubtful, finish);
      continue;
    }
    if (count == 0) continue;
    for (int s = 0; s < 16; ++s) {
      for (unsigned left = __ballot_sync(kAllLanes, found >> s & 1u); left != 0; left &= left - 1) {
        const int l = __ffs(int(left)) - 1;
        const int64_t i = row_of(s, l), j = column_of(s, l);
        const float z = recomputed_element(p, i, j);
        if (lane == 0) finish(i, j, z);
      }
    }
  }
}

template <class E>
cudaError_t launch_recheck(const Product& product, const E& epilogue, cudaStream_t stream) {
  const int64_t tiles = ((product.rows + kRecheckTile - 1) / kRecheckTile) *
                        ((product.columns + kRecheckTile - 1) / kRecheckTile);
  constexpr int64_t kMostBlocks = 1024;  // resident at once on a GPU of 128 multiprocessors or more
  const size_t bytes = 2 * kRecheckDepth * kRecheckPad * sizeof(float) + kRecheckWarps * 4;
  return launch(recheck_product<E>, dim3(unsigned(tiles < kMostBlocks ? tiles : kMostBlocks)),
                dim3(kRecheckThreads), bytes, stream, product, epilogue);
}

}  // namespace fusegen
