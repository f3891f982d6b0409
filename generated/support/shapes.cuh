// Launch shapes as pure functions of the sizes: what all kinds of kernels share, those of pointwise
// kernels, and the workspace that kernels of one schedule have together.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "samples.cuh"

namespace fusegen {

// Hands out 256-byte aligned pieces of a workspace, which may be null where no piece is taken.
// Made without a workspace it only counts the bytes.
class Scratch {
 public:
  Scratch() : measures_(true) {}
  explicit Scratch(void* workspace) : workspace_(static_cast<char*>(workspace)) {}

  template <typename T>
  T* take(int64_t count) {
    T* piece = measures_ ? nullptr : reinterpret_cast<T*>(workspace_ + bytes_);
    bytes_ += (count * int64_t(sizeof(T)) + 255) / 256 * 256;
    return piece;
  }

  // Whether this is only about the bytes: then nothing is launched.
  bool measures() const { return measures_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* workspace_ = nullptr;
  int64_t bytes_ = 0;
  bool measures_ = false;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int power_of_two_from(int64_t n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

template <typename... Pointers>
bool aligned_to_16(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// A GPU, as launch shapes see it: devices.cuh has those of all compute capabilities.
struct Target {
  int capability;        // ten times the major plus the minor
  int multiprocessors;
  int64_t shared_bytes;  // of a block, at most
  int64_t l2_bytes;
  int most_cluster;      // blocks of a cluster, at most
};

// Multiprocessors that have blocks of clusters: those of more than two leave some without one.
inline int usable_multiprocessors(int cluster, int multiprocessors) {
  return cluster > 2 ? multiprocessors - multiprocessors / 8 : multiprocessors;
}

// Which of the tensors that a program is given begin at multiples of 16 bytes.
enum class Aligned {
  kNone,
  kElements,  // those that have rows and channels, at least
  kAll,
};

enum Schedule : int64_t {
  kAutomatic = 0,           // by the sizes
  kPersistent = 1,          // in registers or in shared memory; an error where that does not fit
  kL2 = 2,                  // in the L2; an error where rows do not begin at multiples of a vector
  kTwoPass = 3,             // fits every size
  kPersistentIfItFits = 4,  // else by the sizes
  kL2IfItFits = 5,          // else likewise
};

// What a launch leaves open: how much is in flight, never what is computed.
// fusegen/plan/launches/shapes.py has the same fields, with the values that are measured and
// verified.
struct Shapes {
  int64_t schedule = kAutomatic;
  int64_t pointwise_blocks = 0;        // blocks per multiprocessor of a pass with sums; 0 the best
  int64_t row_waves = 1;               // blocks of a row kernel for each that is resident
  int64_t row_share = 0;               // 1 the least of a segment for a thread, 2 twice that
  int64_t column_threads_per_row = 0;  // threads per row of a column tile; 0 likewise
  int64_t column_cluster = 0;          // blocks that share a column tile; 0 likewise
  int64_t l2_lag = 0;                  // tiles from sums to results; 0 likewise
  int64_t row_reduction_blocks = 0;    // blocks that share a segment read twice; 0 likewise

  // The same with another value of one field.
  constexpr Shapes with(int64_t Shapes::*field, int64_t value) const {
    Shapes other = *this;
    other.*field = value;
    return other;
  }
};

// How many rows follow each other until one begins at a multiple of a vector again, as the first
// does. A power of two, as `vector` is.
inline int row_period(int64_t channels, int vector) {
  while (vector > 1 && channels % 2 == 0) {
    channels /= 2;
    vector /= 2;
  }
  return vector;
}

// A launch over tiles of rows, in which each thread has the same columns of some of them. A tile is
// a row, or `period` rows where not each begins at a multiple of a vector.
struct PointwiseShape {
  dim3 grid;
  dim3 block;
  int64_t tiles;
  int64_t tiles_per_block;
  int period;
  int64_t sample_blocks = 0;  // with sums of samples: blocks that share the rows of one
};

// How many of the threads that take vectors side by side have one.
inline double used_share(int64_t vectors, int threads) {
  return double(vectors) / double(ceil_div(vectors, threads) * threads);
}

// Threads per tile of a block, with neighbouring vectors: a warp, if there are so many vectors.
inline int pointwise_width(int64_t vectors) {
  return vectors < 32 ? power_of_two_from(vectors) : 32;
}

// The same by samples: a part of a warp where that leaves fewer threads idle.
inline int pointwise_width_of_samples(int64_t vectors) {
  int width = pointwise_width(vectors);
  while (width > 8 && used_share(vectors, width) < 0.8 &&
         used_share(vectors, width / 2) > used_share(vectors, width)) {
    width /= 2;
  }
  return width;
}

// What a pointwise kernel does, by which it is cut into blocks: it only stores results, takes sums
// of the columns of one tensor, or sums of several besides what it may store.
enum class PointwiseWork { kStores, kSum, kSums };

// Rows of a tile: a period, or a few where fewer threads are idle then.
inline int tile_rows(int64_t channels, int vector, bool sums) {
  const int period = row_period(channels, vector);
  const auto used = [&](int periods) {  // of the threads
    const int64_t vectors = periods * period * channels / vector;
    return used_share(vectors, pointwise_width(vectors));
  };
  int best = 1;
  for (int periods = 2; !sums && periods <= 8 && used(best) < 0.8; ++periods) {
    if (used(periods) > used(best)) best = periods;
  }
  return best * period;
}

// As many blocks as are fastest, as measured; none with fewer than four tiles per thread unless the
// tiles run out. Without sums, eight tiles where there are blocks enough: then the values of its
// columns are little of what a thread reads. With sums, blocks that run at the same time, of which
// each has a partial result of each column for each row of a tile.
inline PointwiseShape pointwise_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed,
    PointwiseWork work, int multiprocessors, bool by_samples = false) {
  constexpr int kThreads = 256;
  const bool sums = work != PointwiseWork::kStores;
  const int period = packed ? 1 : tile_rows(channels, vector, sums);
  const int64_t tiles = ceil_div(rows, period);
  const int64_t vectors = ceil_div(period * channels, vector);
  const int width = by_samples ? pointwise_width_of_samples(vectors) : pointwise_width(vectors);
  int at_once = kThreads / width;  // tiles per iteration
  while (at_once * width > 32 && at_once / 2 >= tiles) at_once /= 2;
  const int64_t blocks_per_tile = ceil_div(vectors, width);
  const int64_t weight = sums ? std::max<int64_t>(blocks_per_tile, period / 2) : blocks_per_tile;
  const int64_t usual = work == PointwiseWork::kStores ? 16 : work == PointwiseWork::kSum ? 4 : 8;
  const int64_t blocks = sums && shapes.pointwise_blocks != 0 ? shapes.pointwise_blocks : usual;
  int64_t down = ceil_div(tiles, int64_t(at_once) * 4);
  down = std::min(down, ceil_div(blocks * multiprocessors, weight));
  if (!sums) down = std::max(down, ceil_div(tiles, int64_t(at_once) * 8));
  down = std::min<int64_t>(down, 65535);
  const int64_t tiles_per_block = ceil_div(ceil_div(tiles, down), at_once) * at_once;
  down = ceil_div(tiles, tiles_per_block);
  return {dim3(unsigned(blocks_per_tile), unsigned(down)), dim3(width, at_once), tiles,
          tiles_per_block, period};
}

// Blocks of a multiprocessor that run at the same time, in a pass by samples with sums.
constexpr int kPointwiseBlocksOfSamples = 3;

// The same by samples: tiles are of the rows of one.
inline PointwiseShape pointwise_shape_of_samples(
    const Shapes& shapes, int64_t rows, int64_t samples, int64_t channels, int vector, bool packed,
    PointwiseWork work, int multiprocessors) {
  PointwiseShape shape = pointwise_shape(
      shapes, rows / samples, channels, vector, packed, PointwiseWork::kSums, multiprocessors,
      true);
  const int64_t usual = work == PointwiseWork::kStores ? 8
      : shapes.pointwise_blocks != 0                   ? shapes.pointwise_blocks
                                                       : kPointwiseBlocksOfSamples;
  const int64_t down = shape.block.y, most = ceil_div(shape.tiles, 4 * down);
  const int64_t blocks =
      blocks_of_sample(samples, most, 1, usual * multiprocessors / shape.grid.x);
  shape.tiles_per_block = ceil_div(ceil_div(shape.tiles, blocks), down) * down;
  shape.sample_blocks = ceil_div(shape.tiles, shape.tiles_per_block);
  shape.grid.y = sample_grid(samples, shape.sample_blocks);
  return shape;
}

// A launch in which a block adds up the partial results of some columns.
struct FinalReductionShape {
  dim3 grid;
  dim3 block;
};

// The more partial results a column has, the more threads share them, down to 32 bytes of columns,
// what the memory moves at least.
inline FinalReductionShape final_reduction_shape(int64_t channels, int64_t partials) {
  constexpr int kThreads = 256;
  int width = 32;
  while (width > 8 && partials > 2 * kThreads / width) width /= 2;
  return {dim3(unsigned(ceil_div(channels, width))), dim3(width, kThreads / width)};
}

// Where segments have several blocks: blocks of a multiprocessor at most, and iterations of a
// segment at least. As measured: beyond that it takes longer to bring them together than they save.
constexpr int kRowReductionBlocks = 4;
constexpr int kRowReductionIterations = 4;

// As many segments at a time as the grid may have, and in z the blocks that share one: a cluster of
// more than one where segments are few and long, and each of its blocks has an iteration, which
// reads `step` elements. chosen_by: the rows that decide how many segments are few.
inline dim3 row_reduction_grid(
    const Shapes& shapes, int64_t rows, int64_t chosen_by, int64_t groups, int64_t length,
    int64_t step, int most_cluster, int multiprocessors) {
  const int64_t segments = chosen_by * groups;
  const auto eligible = [&](int64_t blocks) {
    const int usable = usable_multiprocessors(int(blocks), multiprocessors);
    const int64_t iterations = std::max<int64_t>(blocks, kRowReductionIterations);
    return segments * blocks <= kRowReductionBlocks * usable && length >= iterations * step;
  };
  int64_t blocks = 1;
  while (2 * blocks <= most_cluster && eligible(2 * blocks)) blocks *= 2;
  if (shapes.row_reduction_blocks != 0) {
    blocks = std::min<int64_t>(shapes.row_reduction_blocks, most_cluster);
  }
  return dim3(unsigned(std::min<int64_t>(rows * groups, 0x7fffffff)), 1, unsigned(blocks));
}

// How many of the `threads` of each of the `blocks` that share a segment: all, or as many lanes of
// a warp as a short segment has vectors. One that begins within a vector may have one more.
inline int row_reduction_lanes(
    int64_t length, int vector, bool packed, unsigned blocks, int threads) {
  const int64_t vectors = ceil_div(packed ? length : length + vector - 1, int64_t(vector));
  return blocks > 1 || vectors > 32 ? threads : power_of_two_from(vectors);
}

}  // namespace fusegen
