// Blocks of a pass by samples: each has rows of one sample at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

namespace fusegen {

// The rows of the partial results of a sample. `blocks` blocks share its `rows` rows, in tiles of
// `period` rows, and each leaves a partial result for each row of a tile, of up to `most` rows.
struct SampleRows {
  int64_t blocks, most, rows, period;

  __host__ __device__ int64_t partials() const { return blocks * period; }
  // Of a partial result, counted from the first of all samples.
  __host__ __device__ int64_t operator()(int64_t partial) const {
    const int64_t own = partial % partials(), block = own / period, row = own - block * period;
    const int64_t left = (rows - row + period - 1) / period - block * most;
    return left < 0 ? 0 : left < most ? left : most;
  }
  // Of a block with tiles of one row.
  __host__ __device__ int64_t of_block(int64_t block) const { return (*this)(block); }
};

// How many blocks share the rows of a sample, a multiple of `multiple` up to `most`: as few as fill
// the places, of which `at_once` run at the same time.
inline int64_t blocks_of_sample(
    int64_t samples, int64_t most, int64_t multiple, int64_t at_once) {
  at_once = std::max<int64_t>(at_once, 1);
  const auto used = [&](int64_t blocks) {
    const int64_t all = samples * blocks, rounds = (all + at_once - 1) / at_once;
    return double(all) / double(rounds * at_once);
  };
  int64_t best = multiple;
  for (int64_t blocks = 2 * multiple; blocks <= most && used(best) < 0.95; blocks += multiple) {
    if (samples * blocks > 4 * at_once) break;
    if (used(blocks) > 1.05 * used(best)) best = blocks;
  }
  return best;
}

// Blocks of a grid in y: those of as many samples as it has place for, which go on to others.
inline unsigned sample_grid(int64_t samples, int64_t blocks) {
  const int64_t most = std::max<int64_t>(65535 / blocks, 1);
  return unsigned(std::min(samples, most) * blocks);
}

}  // namespace fusegen
