// Launch shapes of kernels that hold columns in shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "shapes.cuh"

namespace fusegen {

// A launch in which a cluster of grid.z blocks holds a tile of columns in shared memory: each block
// rows_per_block of their rows, the last ones fewer or none.
struct Column {
  dim3 grid;
  dim3 block;
  int rows_per_block;
  size_t shared_bytes;
  bool fits;
};

// What a tile takes of shared memory, in bytes: each of its elements, an element of the narrowest
// tensor in it, what a warp sums of a column, and what a block of a cluster shows of one.
struct TileBytes {
  int64_t element, narrowest, sums, exchange;
};

// A tile of `width` vectors over `cluster` blocks. A block is a warp, or no higher than its rows;
// where there are several tiles for each multiprocessor, smaller blocks if rows are few: then more
// of them are resident.
inline Column column_tile(
    int64_t rows, int64_t channels, int vector, const TileBytes& bytes, int width, int cluster,
    int multiprocessors) {
  constexpr int kThreads = 512;
  const int64_t rows_per_block = ceil_div(rows, cluster);
  const int64_t columns = int64_t(width) * vector;
  const bool many = ceil_div(channels, columns) * cluster > 2 * multiprocessors;
  int height = kThreads / width;
  while (height > rows_per_block && height * width > 32) height /= 2;
  const int least = bytes.element < 4 ? 16 : 8;  // rows of a thread
  while (many && height * least > rows_per_block && height * width > 128) height /= 2;
  const int64_t tile = ceil_div(rows_per_block * columns * bytes.element, 16) * 16;
  const int64_t sums = columns * bytes.sums * (height * width / 32);
  const int64_t exchange = cluster > 1 ? columns * bytes.exchange * (cluster + 1) : 0;
  return {dim3(unsigned(ceil_div(channels, columns)), 1, unsigned(cluster)), dim3(width, height),
          int(rows_per_block), size_t(tile + exchange + sums), true};
}

// Whether a cluster that shares one of few tiles is faster than a second read, as measured: nearly
// half of the multiprocessors have a block, or a block has few rows. Clusters of more than two must
// all be resident at once, with room for a second block on a multiprocessor, or else leave a
// quarter of the multiprocessors out: larger clusters cannot fill them all.
inline bool shares_well(const Column& tile, int64_t share, int most_cluster, int multiprocessors) {
  const int64_t cluster = tile.grid.z;
  const int64_t blocks = tile.grid.x * cluster;
  const bool spread = blocks * 9 >= int64_t(multiprocessors) * 4 || tile.rows_per_block <= 512 ||
      cluster * 2 > most_cluster;
  if (cluster <= 2) return spread;
  const bool small = int64_t(tile.shared_bytes) <= share;
  return spread && blocks <= multiprocessors &&
      (small || (blocks * 4 <= int64_t(multiprocessors) * 3 && tile.rows_per_block <= 1024));
}

// The first aim that can be reached, and for that the widest tile, over as few blocks as possible.
// Memory is read in sectors of 32 bytes, and faster in pairs of them; threads whose columns are not
// packed access as many neighbours at once as the tile has vectors. Where several blocks fit a
// multiprocessor, one reads while another one reduces. Where the sizes decide, what needs narrower
// tiles or larger clusters is left to the split schedule, which is faster then. But few tiles,
// which would leave multiprocessors without a block, are narrow and shared by more blocks.
inline Column column_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed,
    const TileBytes& bytes, int64_t limit, int most_cluster, int multiprocessors) {
  struct Aim {
    int64_t row_bytes, shared_bytes;
  };
  const bool automatic = shapes.schedule == kAutomatic;
  const int64_t blocks = shapes.column_blocks;
  const int64_t share = (limit - (blocks - 1) * 1024) / blocks;  // a block takes 1 KB besides
  const int64_t wide = packed ? 64 : 128;
  const int64_t vector_bytes = vector * bytes.narrowest;
  const int64_t least = std::max(vector_bytes * 4, wide / 2);
  const Aim chosen[] = {{wide, share}, {wide, limit}, {least, limit}};
  const Aim asked[] = {{wide, share}, {wide / 2, share}, {32, limit}};
  const bool few = automatic && packed && channels * bytes.narrowest / 64 * 2 < multiprocessors;
  const int aims = automatic && !packed ? 2 : 3;
  // Single elements of 16 bits do not come by asynchronous copies, and the split schedule has
  // vectors at any size: a tile pays for few rows only. Not so if it is an address that forbids
  // vectors.
  const bool slow = automatic && bytes.narrowest < 4 && channels % vector != 0;
  if (slow && rows > 256) return {dim3(1), dim3(1), 0, 0, false};
  const int clusters = automatic && !few ? std::min(packed ? 2 : 1, most_cluster) : most_cluster;
  // Two at least: what lies behind a tile is aligned for any type.
  int most = 2;
  const int widest = few ? 4 : (rows > 16 ? 16 : 32);
  while (most < widest && most * vector < channels) most *= 2;
  for (int cluster = int(shapes.column_cluster); cluster <= clusters; cluster *= 2) {
    for (int i = 0; i < aims; ++i) {
      const Aim& aim = automatic ? chosen[i] : asked[i];
      for (int width = most; width >= 2; width /= 2) {
        if (width < most && width * vector_bytes < aim.row_bytes) break;
        const Column tile =
            column_tile(rows, channels, vector, bytes, width, cluster, multiprocessors);
        if (int64_t(tile.shared_bytes) > aim.shared_bytes) continue;
        if (few && !shares_well(tile, share, most_cluster, multiprocessors)) continue;
        // One tile at a time is worth it as long as each multiprocessor has few of them: two that
        // are narrow, four of 16 bits, eight of float32 without vectors, any number of others.
        const bool lone = int64_t(tile.shared_bytes) > share;
        const bool narrow = width * vector_bytes < wide;
        const bool limited = narrow || bytes.narrowest < 4 || !packed;
        const int64_t blocks_of_all = int64_t(tile.grid.x) * cluster;
        const int64_t most_lone = (narrow ? 2 : bytes.narrowest < 4 ? 4 : 8) * multiprocessors;
        if (automatic && lone && limited && blocks_of_all > most_lone) continue;
        // So is a pair of blocks for each tile.
        if (automatic && cluster > 1 && blocks_of_all > 4 * multiprocessors) continue;
        return tile;
      }
    }
  }
  return {dim3(1), dim3(1), 0, 0, false};
}

}  // namespace fusegen
