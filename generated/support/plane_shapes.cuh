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

constexpr int kPlaneSharedThreads = 768;  // of a block, at most
constexpr int kPlaneSharedVectors = 4;    // of a thread that are worth its share of a reduction
constexpr int kPlaneSharedDepth = 8;      // vectors of each tensor that a thread has in flight

// A launch in which a block has some neighbouring channels of a sample: threadIdx.x is the lane of
// a warp, and `warps` warps follow each other in y for each channel, with vectors of its positions.
struct PlaneSharedShape {
  dim3 grid;
  dim3 block;
  int warps;
  int64_t slots;  // vectors of each tensor that a block has room for
  int64_t bytes;
  bool fits;  // whether the kernel can run
  bool pays;  // whether few of its threads are idle
};

// length: channels of a block. element: bytes of all tensors that stay, of one element. sums: bytes
// of what warps exchange.
inline PlaneSharedShape plane_shared_shape(
    int64_t samples, int64_t positions, int64_t channels, int64_t length, int vector,
    int64_t element, int64_t sums, int64_t shared_bytes) {
  const int64_t vectors = ceil_div(positions, vector);
  const int64_t wanted = ceil_div(vectors, int64_t(32) * kPlaneSharedVectors);
  const int64_t most = kPlaneSharedThreads / 32 / length;
  const int warps = int(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most, 1)));
  const int64_t threads = 32 * warps * length;
  const int64_t slots = ceil_div(vectors, int64_t(32) * warps) * threads;
  const int64_t bytes = slots * vector * element + sums, blocks = samples * (channels / length);
  const bool fits = positions % vector == 0 && threads <= kPlaneSharedThreads &&
      bytes <= shared_bytes && blocks < int64_t(1) << 31;
  return {dim3(unsigned(blocks)), dim3(32, unsigned(warps * length)), warps, slots, bytes, fits,
          fits && used_share(vectors, 32 * warps) >= 0.5};
}

}  // namespace fusegen
