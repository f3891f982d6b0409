// Splits a float32 matrix into its pieces: one exponent for each row, or for each column.
#pragma once

#include <cstdint>

#include "../launch.cuh"
#include "../reduce_lanes.cuh"
#include "pieces.cuh"
#include "split_elements.cuh"

namespace fusegen {

constexpr int kSplitThreads = 512;
constexpr int kSplitWarps = kSplitThreads / 32;

constexpr int kKept = 4;  // vectors of a thread of split_rows, which it reads once

// One row a block, whose warps are as many as launch_split says. folded: of the columns, where
// kFolds.
template <bool kFolds>
__global__ void __launch_bounds__(kSplitThreads)
    split_rows(const float* values, int64_t columns, bool aligned, const int* folded, Pieces to) {
  wait_for_earlier_kernels();
  const int64_t row = blockIdx.x;
  const auto elements = [&](int64_t column) {
    return load_four(values + row * columns, column, columns, aligned);
  };
  const auto folds = [&](int64_t column) {
    return kFolds ? load_folds(folded, column, columns, aligned) : make_int4(0, 0, 0, 0);
  };
  float4 kept[kKept];
  int4 kept_folds[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = 4 * (threadIdx.x + int64_t(i) * blockDim.x);
    if (column >= columns) continue;
    kept[i] = elements(column);
    kept_folds[i] = folds(column);
  }
  // Without exponents to fold in that of the largest element is the largest.
  int largest = kFolds ? kNoExponent : 0;
  const auto look = [&](float x, int fold) {
    if constexpr (kFolds) {
      if (is_finite(x) && x != 0) largest = max(largest, exponent_of(x) - fold);
    } else {
      if (is_finite(x)) largest = max(largest, __float_as_int(fabsf(x)));
    }
  };
  const auto take = [&](const float4& x, const int4& fold) {
    look(x.x, fold.x);
    look(x.y, fold.y);
    look(x.z, fold.z);
    look(x.w, fold.w);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = 4 * (threadIdx.x + int64_t(i) * blockDim.x);
    if (column < columns) take(kept[i], kept_folds[i]);
  }
  const int64_t first_again = int64_t(4 * kKept) * blockDim.x;
  for (int64_t column = first_again + 4 * threadIdx.x; column < columns;
       column += 4 * blockDim.x) {
    take(elements(column), folds(column));
  }
  int* const shared = shared_memory<int>();
  reduce_over_block<LargestExponent>(shared, largest);
  if constexpr (!kFolds) largest = exponent_of(__int_as_float(largest));
  const int e = row_exponent(largest);

  unsigned lost = 0;
  const auto put = [&](const float4& x, const int4& fold, int64_t column) {
    const Split s[4] = {split_folded(x.x, e, fold.x), split_folded(x.y, e, fold.y),
                        split_folded(x.z, e, fold.z), split_folded(x.w, e, fold.w)};
#pragma unroll
    for (int i = 0; i < 4; ++i) lost = AddLost::combine(lost, s[i].lost);
    store_four(to, row * to.stride + column, s);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = 4 * (threadIdx.x + int64_t(i) * blockDim.x);
    if (column < columns) put(kept[i], kept_folds[i], column);
  }
  for (int64_t column = first_again + 4 * threadIdx.x; column < columns;
       column += 4 * blockDim.x) {
    put(elements(column), folds(column), column);
  }
  reduce_over_block<AddLost>(reinterpret_cast<unsigned*>(shared), lost);
  if (threadIdx.x != 0) return;
  to.largest[row] = largest;
  to.lost[row] = lost;
  if (lost != 0) atomicAdd(to.lost_in_all, static_cast<unsigned long long>(lost));
}

// By columns, in two launches: the largest exponents, then the pieces. A block has 32 kColumns
// columns of kColumnRows rows at a time, each warp has every kSplitWarps-th of these.
constexpr int kColumns = 4;  // of a thread
constexpr int kColumnRows = 64;
constexpr int64_t kMostBlocksDown = 65535;  // that a grid has in y

// What the warps of a block have of each of its columns, reduced; for the threads of warp 0.
// shared: kSplitThreads kColumns words.
template <typename Op, typename T>
__device__ __forceinline__ void reduce_columns_of_block(T (&value)[kColumns], T* shared) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) shared[threadIdx.x * kColumns + i] = value[i];
  __syncthreads();
  if (threadIdx.x >= 32) return;
  for (int w = 1; w < kSplitWarps; ++w) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      value[i] = Op::combine(value[i], shared[(threadIdx.x + 32 * w) * kColumns + i]);
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
  for (int64_t top = int64_t(blockIdx.y) * kColumnRows; top < rows;
       top += int64_t(gridDim.y) * kColumnRows) {
#pragma unroll 4
    for (int n = 0; n < kColumnRows / kSplitWarps; ++n) {
      const int64_t row = top + n * kSplitWarps + threadIdx.x / 32;
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
  }
  reduce_columns_of_block<LargestExponent>(largest, shared_memory<int>());
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
  for (int64_t top = int64_t(blockIdx.y) * kColumnRows; top < rows;
       top += int64_t(gridDim.y) * kColumnRows) {
#pragma unroll 4
    for (int n = 0; n < kColumnRows / kSplitWarps; ++n) {
      const int64_t row = top + n * kSplitWarps + threadIdx.x / 32;
      if (row >= rows || first >= columns) continue;
      const float4 x = load_four(values + row * columns, first, columns, aligned);
      const int fold = fold_of(folded, row);
      const Split s[kColumns] = {split_folded(x.x, e[0], fold), split_folded(x.y, e[1], fold),
                                 split_folded(x.z, e[2], fold), split_folded(x.w, e[3], fold)};
#pragma unroll
      for (int i = 0; i < kColumns; ++i) lost[i] = AddLost::combine(lost[i], s[i].lost);
      store_four(to, row * to.stride + first, s);
    }
  }
  reduce_columns_of_block<AddLost>(lost, shared_memory<unsigned>());
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
  if (layout.stride() - layout.columns >= 4) {  // padding that no four elements reach
    const cudaError_t error = fill(to.high, 0, 2 * layout.plane(), stream);
    if (error != cudaSuccess) return error;
  }
  if (!layout.by_columns) {
    const cudaError_t error = fill(to.lost_in_all, 0, 1, stream);
    if (error != cudaSuccess) return error;
    // As many warps as keep a row: with more of them idle ones take the place of other rows.
    constexpr int64_t kOfWarp = 32 * 4 * kKept;
    const int64_t wanted = (layout.columns + kOfWarp - 1) / kOfWarp;
    const unsigned warps = unsigned(wanted < kSplitWarps ? wanted : kSplitWarps);
    const auto kernel = folds == nullptr ? split_rows<false> : split_rows<true>;
    return launch_with(false, kernel, dim3(unsigned(layout.rows)), dim3(32 * warps),
                       32 * sizeof(int), stream, values, layout.columns, aligned, folds, to);
  }
  // 0x80808080 is below every exponent. The counts of columns and the count of all are neighbours.
  cudaError_t error = fill(to.largest, 0x80, layout.columns, stream);
  if (error == cudaSuccess) error = fill(to.lost, 0, layout.columns + 2, stream);
  if (error != cudaSuccess) return error;
  constexpr int64_t kAcross = 32 * kColumns;
  const int64_t down = (layout.rows + kColumnRows - 1) / kColumnRows;
  const dim3 grid(unsigned((layout.columns + kAcross - 1) / kAcross),
                  unsigned(down < kMostBlocksDown ? down : kMostBlocksDown));
  constexpr size_t kBytes = kSplitThreads * kColumns * sizeof(int);
  error = launch_with(false, largest_of_columns, grid, block, kBytes, stream, values, layout.rows,
                      layout.columns, aligned, folds, to);
  if (error != cudaSuccess) return error;
  return launch(split_columns, grid, block, kBytes, stream, values, layout.rows, layout.columns,
                aligned, folds, to);
}

}  // namespace fusegen
