// Launch shapes of plane kernels, as plain functions of the sizes.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "tile_shapes.cuh"

namespace fusegen {

constexpr int kPlaneThreads = 256;  // of a block
constexpr int kPlaneVectors = 4;    // of each tensor that a thread loads before it uses the first

// Threads in x share a channel: a warp or a part of one, so many that few of them have no vector of
// an image. A tile is a vector for each of them. Threads in y have neighbouring channels.
inline TileShape plane_shape(
    const Shapes& shapes, int64_t rows, int64_t positions, int64_t channels, int vector,
    PointwiseWork work, int multiprocessors) {
  const int64_t vectors = ceil_div(positions, vector);
  int lanes = std::min(32, power_of_two_from(vectors));
  while (lanes > 8 && used_share(vectors, lanes / 2) > used_share(vectors, lanes)) lanes /= 2;
  const int down = kPlaneThreads / lanes;
  ImageTiles tiles = image_tiles(rows, positions, lanes * vector);
  const int64_t across = ceil_div(channels, down);
  const int64_t usual = shapes.pointwise_blocks != 0 ? shapes.pointwise_blocks
      : work == PointwiseWork::kStores               ? 16
                                                     : 12;
  const int64_t wanted = std::min(tiles.count, ceil_div(usual * multiprocessors, across));
  const dim3 grid(unsigned(across), divide_tiles(tiles, wanted));
  return {grid, dim3(unsigned(lanes), unsigned(down)), tiles};
}

}  // namespace fusegen
