// Splits a float32 matrix into its pieces: one exponent for each row, or for each column.
#pragma once

#include <cstdint>

#include "../launch.cuh"
#include "../thread_positions.cuh"
#include "pieces.cuh"

namespace fusegen {

constexpr int kSplitThreads = 512;
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

__device__ __forceinline__ void store_four(const Pieces& to, int64_t at, const Split (&s)[4]) {
  *reinterpret_cast<uint2*>(to.high + at) =
      make_uint2(word_of(s[0].high, s[1].high), word_of(s[2].high, s[3].high));
  *reinterpret_cast<uint2*>(to.low + at) =
      make_uint2(word_of(s[0].low, s[1].low), word_of(s[2].low, s[3].low));
}

// The exponent by which elements are divided. folded: null, or what another matrix keeps of its
// rows.
__device__ __forceinline__ int fold_of(const int* folded, int64_t index) {
  return folded == nullptr ? 0 : row_exponent(__ldg(folded + index));
}

// One row a block. folded: of the columns.
__global__ void __launch_bounds__(kSplitThreads)
    split_rows(const float* values, int64_t columns, bool aligned, const int* folded, Pieces to) {
  wait_for_earlier_kernels();
  constexpr int kKept = 4;  // vectors of a thread that are read once
  const int64_t row = blockIdx.x;
  const float* const from = values + row * columns;
  const auto exponent = [&](float x, int64_t column) {
    if (!is_finite(x) || x == 0) return kNoExponent;
    return exponent_of(x) - fold_of(folded, column);
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
      return split(value, e - (c < columns ? fold_of(folded, c) : 0));
    };
    const Split s[4] = {split_at(x.x, column), split_at(x.y, column + 1),
                        split_at(x.z, column + 2), split_at(x.w, column + 3)};
#pragma unroll
    for (int i = 0; i < 4; ++i) lost = add_lost(lost, s[i].lost);
    store_four(to, row * to.stride + column, s);
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
  to.largest[row] = largest;
  to.lost[row] = lost;
  if (lost != 0) atomicAdd(to.lost_in_all, static_cast<unsigned long long>(lost));
}

// By columns, in two launches: the largest exponents, then the pieces. A block has 32 kColumns
// columns of kColumnRows rows, each warp has every kSplitWarps-th of these.
constexpr int kColumns = 4;  // of a thread
constexpr int kColumnRows = 64;

// What the warps of a block have of each of its columns, reduced; for the threads of warp 0.
// shared: kSplitThreads kColumns words.
template <typename T, typename F>
__device__ __forceinline__ void reduce_columns_of_block(T (&value)[kColumns], T* shared, F&& f) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) shared[threadIdx.x * kColumns + i] = value[i];
  __syncthreads();
  if (threadIdx.x >= 32) return;
  for (int w = 1; w < kSplitWarps; ++w) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      value[i] = f(value[i], shared[(threadIdx.x + 32 * w) * kColumns + i]);
    }
  }
}

__global__ void __launch_bounds__(kSplitThreads)
    largest_of_columns(const float* values, int64_t rows, int64_t columns, bool aligned,
                       const int* folded, Pieces to) {
  wait_for_earlier_kernels();
  const int64_t first = (int64_t(blockIdx.x) * 32 + threadIdx.x % 32) * kColumns;
  int largest[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) largest[i] = kNoExponent;
#pragma unroll 4
  for (int n = 0; n < kColumnRows / kSplitWarps; ++n) {
    const int64_t row = int64_t(blockIdx.y) * kColumnRows + n * kSplitWarps + threadIdx.x / 32;
    if (row >= rows || first >= columns) continue;
    const float4 x = load_four(values + row * columns, first, columns, aligned);
    const int fold = fold_of(folded, row);
    const auto exponent = [&](float value) {
      return is_finite(value) && value != 0 ? exponent_of(value) - fold : kNoExponent;
    };
    largest[0] = max(largest[0], exponent(x.x));
    largest[1] = max(largest[1], exponent(x.y));
    largest[2] = max(largest[2], exponent(x.z));
    largest[3] = max(largest[3], exponent(x.w));
  }
  reduce_columns_of_block(largest, shared_memory<int>(), [](int a, int b) { return max(a, b); });
  if (threadIdx.x >= 32) return;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (first + i < columns) atomicMax(to.largest + first + i, largest[i]);
  }
}

__global__ void __launch_bounds__(kSplitThreads)
    split_columns(const float* values, int64_t rows, int64_t columns, bool aligned,
                  const int* folded, Pieces to) {
  wait_for_earlier_kernels();
  const int64_t first = (int64_t(blockIdx.x) * 32 + threadIdx.x % 32) * kColumns;
  int e[kColumns];
  unsigned lost[kColumns] = {};
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    e[i] = first + i < columns ? row_exponent(to.largest[first + i]) : 0;
  }
#pragma unroll 4
  for (int n = 0; n < kColumnRows / kSplitWarps; ++n) {
    const int64_t row = int64_t(blockIdx.y) * kColumnRows + n * kSplitWarps + threadIdx.x / 32;
    if (row >= rows || first >= columns) continue;
    const float4 x = load_four(values + row * columns, first, columns, aligned);
    const int fold = fold_of(folded, row);
    const Split s[kColumns] = {split(x.x, e[0] - fold), split(x.y, e[1] - fold),
                               split(x.z, e[2] - fold), split(x.w, e[3] - fold)};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) lost[i] = add_lost(lost[i], s[i].lost);
    store_four(to, row * to.stride + first, s);
  }
  reduce_columns_of_block(lost, shared_memory<unsigned>(), add_lost);
  if (threadIdx.x >= 32) return;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (lost[i] == 0) continue;
    if (lost[i] < kNotFinite) {
      atomicAdd(to.lost + first + i, lost[i]);
    } else {
      atomicOr(to.lost + first + i, kNotFinite);  // a sum of several would overflow
    }
    atomicAdd(to.lost_in_all, static_cast<unsigned long long>(lost[i]));
  }
}

// Splits values [layout.rows, layout.columns]. folded: null, or what has the exponents to fold in.
// The kernels follow a memset, so they cannot overlap with one.
inline cudaError_t launch_split(
    const float* values, const PiecesLayout& layout, const Pieces* folded, const Pieces& to,
    cudaStream_t stream) {
  const int* const folds = folded == nullptr ? nullptr : folded->largest;
  const bool aligned = layout.columns % 4 == 0 && reinterpret_cast<uintptr_t>(values) % 16 == 0;
  const dim3 block(kSplitThreads);
  if (!layout.by_columns) {
    const cudaError_t error = fill(to.lost_in_all, 0, 1, stream);
    if (error != cudaSuccess) return error;
    return launch_with(false, split_rows, dim3(unsigned(layout.rows)), block,
                       2 * kSplitWarps * sizeof(int), stream, values, layout.columns, aligned,
                       folds, to);
  }
  // 0x80808080 is below every exponent. The counts of columns and the count of all are neighbours.
  cudaError_t error = fill(to.largest, 0x80, layout.columns, stream);
  if (error == cudaSuccess) error = fill(to.lost, 0, layout.columns + 2, stream);
  if (error != cudaSuccess) return error;
  constexpr int64_t kAcross = 32 * kColumns;
  const dim3 grid(unsigned((layout.columns + kAcross - 1) / kAcross),
                  unsigned((layout.rows + kColumnRows - 1) / kColumnRows));
  constexpr size_t kBytes = kSplitThreads * kColumns * sizeof(int);
  error = launch_with(false, largest_of_columns, grid, block, kBytes, stream, values, layout.rows,
                      layout.columns, aligned, folds, to);
  if (error != cudaSuccess) return error;
  return launch(split_columns, grid, block, kBytes, stream, values, layout.rows, layout.columns,
                aligned, folds, to);
}

}  // namespace fusegen
