// Launch configurations of kernels with tiles of columns in shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include <cuda_runtime.h>

#include "column_work.cuh"
#include "shapes.cuh"

namespace fusegen {

// A launch in which a cluster of grid.z blocks has a tile of columns in shared memory: each block
// rows_per_block of its rows, the last blocks fewer or none.
struct Column {
  dim3 grid;
  dim3 block;
  int rows_per_block;
  size_t shared_bytes;
  bool fits;
  double microseconds;  // by column_microseconds()
};

// The launch bounds of a column kernel: threads per block, and resident blocks per multiprocessor.
constexpr int kColumnThreads = 512;
constexpr int kColumnBlocks = 2;

// Rows per iteration of a block with tiles of this width, at most: no more than there are, and
// fewer where rows are few and there are several tiles per multiprocessor.
inline int column_rows_per_iteration(
    int64_t rows_per_block, int64_t blocks, int width, const ColumnWork& work,
    int multiprocessors) {
  int rows = kColumnThreads / width;
  while (rows > rows_per_block && rows * width > 32) rows /= 2;
  const int least = work.element < 4 ? 16 : 8;  // iterations
  const bool many = blocks > 2 * multiprocessors;
  while (many && rows * least > rows_per_block && rows * width > 128) rows /= 2;
  return rows;
}

// A tile of `width` vectors over `cluster` blocks.
inline Column tile_of_columns(
    int64_t rows, int64_t channels, int vector, const ColumnWork& work, int width, int cluster,
    int rows_per_iteration) {
  const int64_t rows_per_block = ceil_div(rows, cluster);
  const int64_t columns = int64_t(width) * vector;
  const int64_t tile = ceil_div(rows_per_block * columns * work.element, 16) * 16;
  const int64_t sums = columns * work.sums * (rows_per_iteration * width / 32);
  const int64_t exchange = cluster > 1 ? columns * work.exchange * (cluster + 1) : 0;
  return {dim3(unsigned(ceil_div(channels, columns)), 1, unsigned(cluster)),
          dim3(width, rows_per_iteration), int(rows_per_block), size_t(tile + exchange + sums),
          true, 0};
}

// How long a kernel with such tiles takes beyond what any kernel does, in about microseconds. Only
// the order matters: the constants are those by which what is chosen is fastest in 2465 cases on an
// H100 and 1843 on an H200 (a pass of one of three chains, in one type, at one size) of which all
// tiles were measured: 1.03 times what is fastest on either, in the geometric mean.
inline double column_microseconds(
    const Column& tile, const ColumnWork& work, int64_t channels, int vector, bool packed,
    const Target& target) {
  const int cluster = int(tile.grid.z);
  const int threads = int(tile.block.x * tile.block.y);
  const int64_t blocks = int64_t(tile.grid.x) * cluster;
  const int64_t columns = int64_t(tile.block.x) * vector;
  // Blocks at a time, by shared memory, of which a block takes 1 KB besides, and by the launch
  // bounds.
  const int64_t resident =
      std::min<int64_t>((target.shared_bytes + 1024) / (int64_t(tile.shared_bytes) + 1024),
                        kColumnBlocks * kColumnThreads / threads);
  const int64_t usable = usable_multiprocessors(cluster, target.multiprocessors);
  const int64_t waves = ceil_div(blocks, resident * usable);
  const int64_t rest = ceil_div(blocks - (waves - 1) * resident * usable, usable);
  const int64_t busiest = (waves - 1) * resident + rest;  // blocks of one multiprocessor
  // Short rows take longer, more so with single elements instead of vectors. Memory moves sectors
  // of 32 bytes; vectors touch up to one more where rows begin within one. With more waves than
  // one, blocks read while others sum, if there are any.
  const int64_t row_bytes = columns * work.narrowest;
  const int64_t within = 32 - std::gcd(channels * work.narrowest, int64_t(32));
  const int64_t moved = packed ? std::max<int64_t>(row_bytes, 32) + within : row_bytes;
  const double element = double(work.moved * work.narrowest) * 17e-6;
  const double shortness = packed ? 42.0 / double(std::min<int64_t>(row_bytes, 128))
                                  : 415.0 / double(std::min<int64_t>(row_bytes, 256));
  const double sectors = (1 + shortness) * double(moved) / double(row_bytes);
  const double alone = waves > 1 ? 1 + 0.35 / double(resident) : 1;
  const double moving = double(busiest * tile.rows_per_block * columns) * element * sectors * alone;
  // A thread's rows come one after the other, and its block ends with sums over all threads.
  const double rows = double(ceil_div(tile.rows_per_block, tile.block.y)) * 0.23;
  const double sums = double(std::min(resident, busiest) * threads) * (packed ? 0.0072 : 0.0024);
  const double time = moving + double(waves) * (rows + sums) + (cluster > 1 ? 5.8 : 0);
  // Few threads at a time leave the memory idle.
  return waves > 1 && resident * threads < 512 ? 2 * time : time;
}

// The fastest tile, by the above, of those that a tuning allows and that fit a block. Widths are
// two vectors at least, as what follows a tile is aligned for any type; 32 of them only for few
// rows.
inline Column column_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed,
    const ColumnWork& work, const Target& target) {
  Column best{dim3(1), dim3(1), 0, 0, false, std::numeric_limits<double>::infinity()};
  int widest = 2;
  while (widest < (rows > 64 ? 16 : 32) && widest * vector < channels) widest *= 2;
  for (int width = 2; width <= widest; width *= 2) {
    if (shapes.column_threads_per_row != 0 && shapes.column_threads_per_row != width) continue;
    for (int cluster = 1; cluster <= target.most_cluster; cluster *= 2) {
      const bool forced = shapes.column_cluster == cluster;
      if (!forced && (shapes.column_cluster != 0 || (cluster > 1 && rows < 96 * cluster))) continue;
      const int64_t blocks = ceil_div(channels, int64_t(width) * vector) * cluster;
      const int most =
          column_rows_per_iteration(ceil_div(rows, cluster), blocks, width, work,
                                    target.multiprocessors);
      for (const int thread_rows : {most, most / 2}) {
        if (thread_rows < most && thread_rows * width < (rows < 64 ? 32 : 64)) continue;
        Column tile = tile_of_columns(rows, channels, vector, work, width, cluster, thread_rows);
        if (int64_t(tile.shared_bytes) > target.shared_bytes) continue;
        tile.microseconds = column_microseconds(tile, work, channels, vector, packed, target);
        if (tile.microseconds < best.microseconds) best = tile;
      }
    }
  }
  return best;
}

}  // namespace fusegen
