// Blocks of a launch whose last pass has sums of samples: each has rows of one sample at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fusegen {

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
