// Splits a float32 matrix into its pieces: one exponent for each row, or for each column.
#pragma once

#include <cstdint>

#include "../launch.cuh"
#include "../thread_positions.cuh"
#include "pieces.cuh"

namespace fusegen {

constexpr int kSplitThreads = 256;
constexpr int kSplitWarps = kSplitThreads / 32;

// The largest exponent over the warp, and the sum of counts, which stays in 32 bits.
__device__ __forceinline__ int warp_largest(int value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}
__device__ __forceinline__ unsigned add_lost(unsigned a, unsigned b) {
  return min(a + b, kNotFinite);
}
__device__ __forceinline__ unsigned warp_lost(unsigned value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = add_lost(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

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

// One row a block. folded: null, or exponents of columns, by which the elements are divided.
__global__ void __launch_bounds__(kSplitThreads)
    split_rows(const float* values, int64_t columns, bool aligned, const int* folded, Pieces to) {
  wait_for_earlier_kernels();
  constexpr int kKept = 8;  // vectors of a thread that are read once
  const int64_t row = blockIdx.x;
  const float* const from = values + row * columns;
  const auto exponent = [&](float x, int64_t column) {
    if (!is_finite(x) || x == 0) return kNoExponent;
    return exponent_of(x) - (folded == nullptr ? 0 : __ldg(folded + column));
  };
  float4 kept[kKept];
  int largest = kNoExponent;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = 4 * (threadIdx.x + int64_t(i) * kSplitThreads);
    if (column < columns) kept[i] = load_four(from, column, columns, aligned);
  }
  const auto take = [&](const float4& x, int64_t column) {
    largest = max(largest, exponent(x.x, column));
    if (column + 1 < columns) largest = max(largest, exponent(x.y, column + 1));
    if (column + 2 < columns) largest = max(largest, exponent(x.z, column + 2));
    if (column + 3 < columns) largest = max(largest, exponent(x.w, column + 3));
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = 4 * (threadIdx.x + int64_t(i) * kSplitThreads);
    if (column < columns) take(kept[i], column);
  }
  constexpr int64_t kFirstAgain = 4 * kKept * kSplitThreads;
  for (int64_t column = kFirstAgain + 4 * threadIdx.x; column < columns;
       column += 4 * kSplitThreads) {
    take(load_four(from, column, columns, aligned), column);
  }
  int* const shared = shared_memory<int>();
  largest = warp_largest(largest);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kSplitWarps; ++w) largest = max(largest, shared[w]);
  const int e = row_exponent(largest);

  unsigned lost = 0;
  const auto put = [&](const float4& x, int64_t column) {
    const auto split_at = [&](float value, int64_t c) {
      return split(value, e - (folded == nullptr || c >= columns ? 0 : __ldg(folded + c)));
    };
    const Split s[4] = {split_at(x.x, column), split_at(x.y, column + 1),
                        split_at(x.z, column + 2), split_at(x.w, column + 3)};
#pragma unroll
    for (int i = 0; i < 4; ++i) lost = add_lost(lost, s[i].lost);
    const int64_t at = row * to.stride + column;
    *reinterpret_cast<uint2*>(to.high + at) =
        make_uint2(word_of(s[0].high, s[1].high), word_of(s[2].high, s[3].high));
    *reinterpret_cast<uint2*>(to.low + at) =
        make_uint2(word_of(s[0].low, s[1].low), word_of(s[2].low, s[3].low));
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = 4 * (threadIdx.x + int64_t(i) * kSplitThreads);
    if (column < columns) put(kept[i], column);
  }
  for (int64_t column = kFirstAgain + 4 * threadIdx.x; column < columns;
       column += 4 * kSplitThreads) {
    put(load_four(from, column, columns, aligned), column);
  }
  lost = warp_lost(lost);
  unsigned* const lost_of_warps = reinterpret_cast<unsigned*>(shared + kSplitWarps);
  if (threadIdx.x % 32 == 0) lost_of_warps[threadIdx.x / 32] = lost;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kSplitWarps; ++w) lost = add_lost(lost, lost_of_warps[w]);
  to.exponents[row] = e;
  to.lost[row] = lost;
  if (lost != 0) atomicAdd(to.lost_in_all, static_cast<unsigned long long>(lost));
}

// 32 kEach columns a block, of all rows: a warp takes every kColumnWarps-th row. folded: null, or
// exponents of rows, by which the elements are divided.
constexpr int kColumnWarps = 32;
template <int kEach>
__global__ void __launch_bounds__(32 * kColumnWarps)
    split_columns(const float* values, int64_t rows, int64_t columns, const int* folded,
                  Pieces to) {
  wait_for_earlier_kernels();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = (int64_t(blockIdx.x) * 32 + lane) * kEach;
  const auto load = [&](int64_t row, int i) {
    return first + i < columns ? __ldg(values + row * columns + first + i) : 0.0f;
  };
  int largest[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) largest[i] = kNoExponent;
#pragma unroll 4
  for (int64_t row = warp; row < rows; row += kColumnWarps) {
    const int fold = folded == nullptr ? 0 : __ldg(folded + row);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float x = load(row, i);
      if (is_finite(x) && x != 0) largest[i] = max(largest[i], exponent_of(x) - fold);
    }
  }
  int* const shared = shared_memory<int>();  // [kColumnWarps][32 kEach]
#pragma unroll
  for (int i = 0; i < kEach; ++i) shared[(warp * 32 + lane) * kEach + i] = largest[i];
  __syncthreads();
  int e[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    for (int w = 0; w < kColumnWarps; ++w) {
      largest[i] = max(largest[i], shared[(w * 32 + lane) * kEach + i]);
    }
    e[i] = row_exponent(largest[i]);
  }
  unsigned lost[kEach] = {};
#pragma unroll 4
  for (int64_t row = warp; row < rows; row += kColumnWarps) {
    const int fold = folded == nullptr ? 0 : __ldg(folded + row);
    const int64_t at = row * to.stride + first;
    if (first >= to.stride) continue;
    Split s[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      s[i] = split(load(row, i), e[i] - fold);
      lost[i] = add_lost(lost[i], s[i].lost);
    }
    if constexpr (kEach == 2) {
      *reinterpret_cast<unsigned*>(to.high + at) = word_of(s[0].high, s[1].high);
      *reinterpret_cast<unsigned*>(to.low + at) = word_of(s[0].low, s[1].low);
    } else {
      to.high[at] = s[0].high;
      to.low[at] = s[0].low;
    }
  }
  __syncthreads();  // all have read the exponents
  unsigned* const counts = reinterpret_cast<unsigned*>(shared);
#pragma unroll
  for (int i = 0; i < kEach; ++i) counts[(warp * 32 + lane) * kEach + i] = lost[i];
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i >= columns) continue;
    for (int w = 1; w < kColumnWarps; ++w) {
      lost[i] = add_lost(lost[i], counts[(w * 32 + lane) * kEach + i]);
    }
    to.exponents[first + i] = e[i];
    to.lost[first + i] = lost[i];
    if (lost[i] != 0) atomicAdd(to.lost_in_all, static_cast<unsigned long long>(lost[i]));
  }
}

// Splits values [layout.rows, layout.columns]. folded: null, or what has the exponents to fold in.
// The kernels follow a memset, so they cannot overlap with one.
inline cudaError_t launch_split(
    const float* values, const PiecesLayout& layout, const Pieces* folded, const Pieces& to,
    cudaStream_t stream) {
  const int* const exponents = folded == nullptr ? nullptr : folded->exponents;
  cudaError_t error = clear_counters(reinterpret_cast<unsigned*>(to.lost_in_all), 2, stream);
  if (error != cudaSuccess) return error;
  if (layout.by_columns) {
    const bool pairs = layout.columns >= 64 * 64;  // enough blocks for most multiprocessors
    const int64_t each = pairs ? 64 : 32;
    const dim3 grid(unsigned((layout.stride() + each - 1) / each)), block(32 * kColumnWarps);
    const size_t bytes = kColumnWarps * each * sizeof(int);
    const auto kernel = pairs ? split_columns<2> : split_columns<1>;
    return launch_with(false, kernel, grid, block, bytes, stream, values, layout.rows,
                       layout.columns, exponents, to);
  }
  const bool aligned = layout.columns % 4 == 0 && reinterpret_cast<uintptr_t>(values) % 16 == 0;
  return launch_with(false, split_rows, dim3(unsigned(layout.rows)), dim3(kSplitThreads),
                     2 * kSplitWarps * sizeof(int), stream, values, layout.columns, aligned,
                     exponents, to);
}

}  // namespace fusegen
