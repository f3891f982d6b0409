// The tiles of a product: which block has which, and which elements of one a thread has.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "product.cuh"

namespace fusegen {

constexpr int kTileRows = 128, kTileColumns = 128, kTileSum = 64, kStages = 3;
constexpr int kPromoted = 64;  // terms of the sum that the tensor core adds up, at most kTileSum
constexpr int kConsumers = 2;  // warpgroups
constexpr int kProductThreads = 128 * (1 + kConsumers);
constexpr int kPiece = kTileRows * kTileSum * 2;  // bytes of a tile of one piece matrix
constexpr int kStage = 4 * kPiece;
constexpr int kSharedAlignment = 1024;  // of a swizzled tile
constexpr int kProductShared = kStages * kStage + kSharedAlignment + 2 * kStages * 8;
// Tiles of so many rows of tiles follow each other, column by column, so that the blocks which run
// at the same time share rows and columns in the L2 cache.
constexpr int kTileGroup = 8;

// Which operand the blocks of a cluster share: the right one if their tiles differ in their rows.
enum class Shared { kLeft, kRight };

inline Shared shared_of(const Product& p) {
  return p.rows > kTileRows ? Shared::kRight : Shared::kLeft;
}

// The first row and column of a tile of the result.
struct TilePlace {
  int row, column;
};

// The tiles of a cluster: pairs, down and across.
struct Tiles {
  Shared shared;
  int down, across;

  __host__ __device__ __forceinline__ Tiles(const Product& p, Shared by) : shared(by) {
    const int row_span = kTileRows * (shared == Shared::kRight ? 2 : 1);
    const int column_span = kTileColumns * (shared == Shared::kLeft ? 2 : 1);
    down = int((p.rows + row_span - 1) / row_span);
    across = int((p.columns + column_span - 1) / column_span);
  }
  __host__ __device__ __forceinline__ int count() const { return down * across; }

  // That of block `rank` of the cluster.
  __device__ __forceinline__ TilePlace place(int tile, int rank) const {
    const int first = tile / (kTileGroup * across) * kTileGroup;
    const int rows = min(kTileGroup, down - first), within = tile - first * across;
    const int row = first + within % rows, column = within / rows;
    return shared == Shared::kRight
               ? TilePlace{(2 * row + rank) * kTileRows, column * kTileColumns}
               : TilePlace{row * kTileRows, (2 * column + rank) * kTileColumns};
  }
};

// What a thread of a warpgroup has of 64 x 128 elements of the result, as wgmma leaves it: pairs of
// columns, 16 in each of two rows. Four neighbouring threads have the same rows.
struct Fragment {
  static constexpr int kPairs = 16;
  int tile_row, tile_column, first_row, first_column;

  __device__ __forceinline__ Fragment(int row, int column) : tile_row(row), tile_column(column) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    first_row = row + thread / 32 * 16 + lane / 4;
    first_column = column + lane % 4 * 2;
  }
  __device__ __forceinline__ int row(int half) const { return first_row + 8 * half; }
  __device__ __forceinline__ int column(int pair) const { return first_column + 8 * pair; }
  // Whether all 64 x 128 elements are inside the product.
  __device__ __forceinline__ bool is_whole(const Product& p) const {
    return tile_row + 64 <= p.rows && tile_column + kTileColumns <= p.columns;
  }
  // The register of the first element of a pair; the second follows.
  static __device__ __forceinline__ constexpr int at(int pair, int half) {
    return 4 * pair + 2 * half;
  }
};

// sum = (sum + cross 2^-11) 2^-e 2^-e': from sums of pieces to the product, zero outside of it.
__device__ __forceinline__ void finish_sums(
    const Product& p, const Fragment& mine, float (&sum)[64], const float (&cross)[64]) {
  int left[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = mine.row(half);
    left[half] = i < p.rows ? row_exponent(__ldg(p.left_largest + i)) : 0;
  }
#pragma unroll
  for (int pair = 0; pair < Fragment::kPairs; ++pair) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int j = mine.column(pair) + v;
      const bool scales = p.right_largest != nullptr && j < p.columns;
      const int right = scales ? row_exponent(__ldg(p.right_largest + j)) : 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = Fragment::at(pair, half) + v;
        sum[at] = scaled(fmaf(cross[at], kLowUnit, sum[at]), -(left[half] + right));
      }
    }
  }
}

}  // namespace fusegen
