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
  const auto used = [&](int lanes) {
    return double(vectors) / double(ceil_div(vectors, lanes) * lanes);
  };
  int lanes = std::min(32, power_of_two_from(vectors));
  while (lanes > 8 && used(lanes / 2) > used(lanes)) lanes /= 2;
  const int down = kPlaneThreads / lanes;
  ImageTiles tiles{};
  tiles.positions = positions;
  while (tiles.size() < lanes * vector) ++tiles.shift;
  tiles.per_image = ceil_div(positions, tiles.size());
  tiles.count = rows / positions * tiles.per_image;
  const int64_t across = ceil_div(channels, down);
  const int64_t usual = shapes.pointwise_blocks != 0 ? shapes.pointwise_blocks
      : work == PointwiseWork::kStores               ? 16
                                                     : 12;
  const int64_t wanted = std::min(tiles.count, ceil_div(usual * multiprocessors, across));
  tiles.per_block = ceil_div(tiles.count, std::clamp<int64_t>(wanted, 1, 65535));
  const int64_t blocks = ceil_div(tiles.count, tiles.per_block);
  return {dim3(unsigned(across), unsigned(blocks)), dim3(unsigned(lanes), unsigned(down)), tiles};
}

}  // namespace fusegen
