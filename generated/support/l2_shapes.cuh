// Launch shapes of kernels whose tiles of columns stay in the L2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <cuda_runtime.h>

#include "column_work.cuh"
#include "shapes.cuh"

namespace fusegen {

// A row of a tile fills a cache line. A block has a slice of a tile's rows.
constexpr int kL2LineBytes = 128;
constexpr int kL2Rows = 256;
constexpr int kL2Threads = 256;
constexpr int kL2Warps = kL2Threads / 32;

// A launch whose blocks go through the tiles in steps, as l2_task() in l2_steps.cuh says.
struct L2Shape {
  dim3 grid;
  dim3 block;
  int tiles;
  int slices;
  int lag;     // tiles from the one that is summed to the one whose results are stored
  bool fits;   // whether the kernel can run
  bool stays;  // whether tiles stay in the L2: it is of use
};

// How long such a kernel takes, like two_pass_microseconds(). What is read again costs little, a
// tile something. Fitted with column_microseconds() as it is: in 1024 cases on an H100 and an
// H200, with rows that fill cache lines, the schedule that is least by these estimates takes 1.01
// times as long as the fastest, in the geometric mean; 1.04 times without the L2-resident schedule.
inline double l2_microseconds(int64_t rows, int64_t channels, const ColumnWork& work) {
  const double bytes = double(rows * channels * work.narrowest);
  const double tiles = double(channels * work.narrowest) / kL2LineBytes;
  return 17.0 + bytes * (work.moved + 0.2 * work.again) * 350e-9 + 0.06 * tiles;
}

// What each tile takes of the L2.
inline int64_t l2_tile_bytes(int64_t rows, const ColumnWork& work) {
  return rows * (kL2LineBytes / work.narrowest) * work.resident;
}

// Whether tiles stay in the L2. Rows have to fill cache lines, or tiles share some. And the L2 has
// to have room for what is read before it is read again: two tiles in a third of it, or everything
// in a half.
inline bool stays_in_l2(
    int64_t rows, int64_t channels, const ColumnWork& work, int64_t l2_bytes) {
  if (channels * work.narrowest % kL2LineBytes != 0) return false;
  const int64_t tile = l2_tile_bytes(rows, work), all = rows * channels * work.resident;
  return 6 * tile <= l2_bytes || 2 * all <= l2_bytes;
}

// With `vector` elements of a row in each thread, where rows begin with vectors.
inline L2Shape l2_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed,
    const ColumnWork& work, int64_t l2_bytes) {
  const int width = kL2LineBytes / int(vector * work.narrowest);
  const int64_t tiles = ceil_div(channels, int64_t(width) * vector);
  const int64_t slices = ceil_div(rows, kL2Rows);
  // What is read before it is read again takes a third of the L2, as measured: as much again passes
  // through it, or half as much.
  const int64_t bytes = std::max<int64_t>(l2_tile_bytes(rows, work), 1);
  const int64_t usual = std::max<int64_t>(1, (l2_bytes / 3 + bytes / 2) / bytes);
  const int64_t lag = std::min(shapes.l2_lag != 0 ? shapes.l2_lag : usual, tiles);
  const int64_t blocks = (tiles + lag) * (2 * slices + vector);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return {dim3(unsigned(blocks)), dim3(width, kL2Threads / width), int(tiles), int(slices),
          int(lag), packed && rows <= kMost - 2 * kL2Rows && blocks <= kMost,
          stays_in_l2(rows, channels, work, l2_bytes)};
}

}  // namespace fusegen
