// Launch shapes of the copy that exchanges the dimensions of images, as plain functions of the
// sizes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "image_copy.h"
#include "shapes.cuh"

namespace fusegen {

constexpr int kCopyThreads = 256;         // of a block, at most
constexpr int kCopyBlocks = 6;            // of a multiprocessor, that registers are left for
constexpr int kCopyTileBytes = 16 * 1024; // of what a block reads
constexpr int kCopyTileRows = 64;         // where there are enough columns
constexpr int kPaddedVectors = 4;         // of a thread, where it pads what lies in order

// A block copies a tile: tile_rows rows by 2^shift columns of one image, or the last ones, which
// may be fewer. row_tiles of them lie below each other, per_image are those of an image.
//
// In shared memory a row has 2^shift elements, and each 2^group rows are followed by `padding`
// elements, so that threads with vectors of neighbouring rows read other banks.
struct CopyTiles {
  int64_t rows, columns;  // of an image, as the result has it
  int64_t given;          // rows that the source has; those behind them are zeros
  unsigned row_tiles, per_image;
  int tile_rows, shift, group, padding;
  int read_step, write_step;  // neighbouring elements of one access to memory
  bool is_narrow;             // a tile has all rows, and is written as what lies together
  // Else 2^lanes threads have neighbouring vectors of a column, next to 2^beside columns.
  int lanes, beside;

  __host__ __device__ int index_of(int row, int column) const {
    return (row << shift) + (row >> group) * padding + column;
  }
  int elements() const { return index_of(tile_rows, 0) + padding; }
};

struct CopyShape {
  unsigned blocks;
  int threads;
  CopyTiles tiles;
};

inline int logarithm_of(int power_of_two) {
  int found = 0;
  while (1 << found < power_of_two) ++found;
  return found;
}

// How many neighbouring elements an access moves, where `length` follow each other at a place that
// vectors of `vector` elements may begin at: a vector, half of it, or one.
inline int copy_step(int64_t length, int vector, bool aligned) {
  for (int step = vector; aligned && 2 * step >= vector && step > 1; step /= 2) {
    if (length % step == 0) return step;
  }
  return 1;
}

inline CopyShape image_copy_shape(const ImageCopy& a) {
  const int reads = int(16 / a.from_bytes), writes = int(16 / a.to_bytes);
  const int most = kCopyTileBytes / int(a.from_bytes);
  const auto below = [](int64_t size, int limit) {  // a power of two
    return size >= limit ? limit : power_of_two_from(size);
  };
  // Rows of a tile are as long as vectors, and what a tile has of a column is whole vectors.
  int width = std::max(below(a.columns, most / kCopyTileRows), std::max(reads, writes));
  CopyTiles tiles{};
  tiles.rows = a.to_rows;
  tiles.columns = a.columns;
  tiles.given = a.rows;
  const int64_t high = std::max<int64_t>(kCopyTileRows, most / width);
  const int64_t even = ceil_div(a.to_rows, ceil_div(a.to_rows, high));
  tiles.tile_rows = even == a.to_rows ? int(even) : int(ceil_div(even, writes)) * writes;
  while (int64_t(tiles.tile_rows) * width * 2 <= most && width < a.columns) width *= 2;
  tiles.shift = logarithm_of(width);
  tiles.row_tiles = unsigned(ceil_div(a.to_rows, tiles.tile_rows));
  tiles.per_image = tiles.row_tiles * unsigned(ceil_div(a.columns, width));
  tiles.read_step = copy_step(a.columns, reads, aligned_to_16(a.from));
  tiles.write_step = copy_step(a.to_rows, writes, aligned_to_16(a.to));
  // Few rows, or odd ones: the columns of a tile follow each other in memory.
  tiles.is_narrow = tiles.row_tiles == 1 &&
                    (tiles.write_step < writes || a.to_rows < int64_t(8) * writes);
  if (tiles.is_narrow) {
    tiles.write_step =
        a.to_rows * a.columns % writes == 0 && aligned_to_16(a.to) ? writes : 1;
  }
  CopyShape shape{unsigned(a.images) * tiles.per_image, kCopyThreads, tiles};
  const int64_t vectors = int64_t(tiles.tile_rows) * width / reads;
  while (shape.threads > 64 && vectors <= shape.threads * 2) shape.threads /= 2;
  // Neighbouring vectors are a line of the caches, 128 bytes, and their banks are evenly apart.
  const int lanes = std::min(128 / (tiles.write_step * int(a.to_bytes)), 32);
  const int used = std::min(lanes, power_of_two_from(ceil_div(tiles.tile_rows, tiles.write_step)));
  shape.tiles.lanes = logarithm_of(lanes);
  shape.tiles.beside = logarithm_of(std::min(width, shape.threads / lanes));
  shape.tiles.group = logarithm_of(tiles.write_step);
  shape.tiles.padding = std::max(tiles.read_step, 128 / int(a.from_bytes) / used);
  return shape;
}

// Of the copy that pads channels, where they are the innermost dimension already.
struct PaddingShape {
  int64_t positions;
  unsigned channels;   // of a position of the source
  unsigned vectors;    // of a position of the result
  unsigned per_block;  // positions
  int step;            // neighbouring elements of one read
};

inline PaddingShape image_padding_shape(const ImageCopy& a) {
  const int writes = int(16 / a.to_bytes);
  PaddingShape shape{a.images * a.columns, unsigned(a.rows), unsigned(a.to_rows / writes), 0, 0};
  shape.per_block = unsigned(std::max<int64_t>(kCopyThreads * kPaddedVectors / shape.vectors, 1));
  shape.step = copy_step(a.rows, writes, aligned_to_16(a.from));
  return shape;
}

}  // namespace fusegen
