// Launch shapes of tile kernels, as plain functions of the sizes.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "samples.cuh"
#include "shapes.cuh"

namespace fusegen {

constexpr int kTileThreads = 256;         // of a block, at most
constexpr int kTileBlocks = 3;            // of a multiprocessor, that registers are left for
constexpr int kTileVectors = 4;           // of a thread in each tensor of a tile
constexpr int kTileShared = 48 * 1024;    // bytes of a block's tile, at most
constexpr int64_t kTilesOfBlock = 4;      // at most, where it has no sums

// The tiles of positions. A tile is size() positions of one image, or the last ones of an image,
// which may be fewer; a block takes per_block of them, one after the other.
struct ImageTiles {
  int64_t positions;  // of an image
  int64_t per_image, count, per_block;
  int shift;  // the logarithm of the positions of a tile
  int64_t sample_blocks;  // by samples: blocks that share the tiles of an image

  __host__ __device__ int size() const { return 1 << shift; }
  template <int kVec>
  __host__ __device__ unsigned vectors() const {
    return unsigned(size()) / kVec;
  }

  // The rows, of [batch * positions, channels], in front of a tile.
  __host__ __device__ int64_t rows_before(int64_t tile) const {
    const int64_t image = tile / per_image;
    return image * positions + (tile - image * per_image) * size();
  }
  // The rows of the tiles of a block.
  __host__ __device__ int64_t rows_of_block(int64_t block) const {
    const int64_t begin = block * per_block, end = begin + per_block;
    if (begin >= count) return 0;
    return rows_before(end < count ? end : count) - rows_before(begin);
  }
  // By samples: the rows of the partial results of one.
  __host__ __device__ SampleRows sample_rows() const {
    return {sample_blocks, per_block * size(), positions, 1};
  }
};

// The rows of the partial results of tiles, which each block leaves.
struct RowsOfTiles {
  ImageTiles tiles;
  __host__ __device__ int64_t operator()(int64_t block) const { return tiles.rows_of_block(block); }
};

// A launch over tiles: grid.x times the channels, grid.y times the positions. Threads in x have
// neighbouring channels, those in y neighbouring positions.
struct TileShape {
  dim3 grid;
  dim3 block;
  ImageTiles tiles;
};

// Tiles of so many positions, or the next power of two; which blocks take them is open.
inline ImageTiles image_tiles(int64_t rows, int64_t positions, int least) {
  ImageTiles tiles{};
  tiles.positions = positions;
  while (tiles.size() < least) ++tiles.shift;
  tiles.per_image = ceil_div(positions, tiles.size());
  tiles.count = rows / positions * tiles.per_image;
  return tiles;
}

// Gives tiles to so many blocks, or fewer. Returns how many there are.
inline unsigned divide_tiles(ImageTiles& tiles, int64_t blocks) {
  tiles.per_block = ceil_div(tiles.count, std::clamp<int64_t>(blocks, 1, 65535));
  return unsigned(ceil_div(tiles.count, tiles.per_block));
}

// Threads with neighbouring vectors of channels, of so many bytes each: 128 bytes, a line of the
// caches, or half of it where that leaves fewer threads idle. At least so many that the block's
// channels and positions, kTileVectors times a thread's, are whole vectors of both.
inline int tile_width(int64_t vectors, int vector, int vector_bytes) {
  const int line = std::max(128 / vector_bytes, 1);
  int width = std::min(line, power_of_two_from(vectors));
  const double used = used_share(vectors, line);
  if (width == line && used < 0.7 && used_share(vectors, line / 2) > used) width /= 2;
  return std::max(width, kTileVectors / vector);
}

// vector_bytes: of a vector of the chain's elements. bytes: of an element of all tensors that go
// through shared memory. Blocks with sums are a multiple of those that run at the same time.
inline TileShape tile_shape(
    const Shapes& shapes, int64_t rows, int64_t positions, int64_t channels, int vector,
    int vector_bytes, int bytes, PointwiseWork work, int multiprocessors) {
  const int64_t vectors = ceil_div(channels, vector);
  int width = tile_width(vectors, vector, vector_bytes);
  int threads = kTileThreads;
  while (threads > 64 && threads * kTileVectors * vector * bytes > kTileShared) threads /= 2;
  // A tile has whole vectors of positions, and a block whole warps.
  const int least = std::max(ceil_div(vector, kTileVectors), ceil_div(int64_t(32), width));
  int down = std::max(threads / width, least);
  while (down > least && int64_t(down / 2) * kTileVectors >= positions) {
    down /= 2;
    if (2 * width <= std::min<int64_t>(32, power_of_two_from(vectors))) width *= 2;
  }
  ImageTiles tiles = image_tiles(rows, positions, down * kTileVectors);
  const int64_t across = ceil_div(vectors, width);
  int64_t blocks = tiles.count;
  if (work == PointwiseWork::kStores) {
    const int64_t each = tiles.count * across / (16 * multiprocessors);
    blocks = ceil_div(blocks, std::clamp<int64_t>(each, 1, kTilesOfBlock));
  } else {
    const int64_t usual = shapes.pointwise_blocks != 0 ? shapes.pointwise_blocks : 12;
    blocks = std::min(blocks, ceil_div(usual * multiprocessors, across));
  }
  const dim3 grid(unsigned(across), divide_tiles(tiles, blocks));
  return {grid, dim3(unsigned(width), unsigned(down)), tiles};
}

// The same by samples, which are images: a block has tiles of one at a time, at least so many.
inline TileShape tile_shape_of_samples(
    TileShape shape, const Shapes& shapes, int64_t least, int multiprocessors) {
  ImageTiles& tiles = shape.tiles;
  const int64_t images = tiles.count / tiles.per_image;
  const int64_t usual = shapes.pointwise_blocks != 0 ? shapes.pointwise_blocks : 12;
  const int64_t most = ceil_div(tiles.per_image, least);
  const int64_t blocks =
      blocks_of_sample(images, most, 1, usual * multiprocessors / shape.grid.x);
  tiles.per_block = ceil_div(tiles.per_image, blocks);
  tiles.sample_blocks = ceil_div(tiles.per_image, tiles.per_block);
  shape.grid.y = sample_grid(images, tiles.sample_blocks);
  return shape;
}

}  // namespace fusegen
