// Launch configurations of the kernel that has rows in shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shapes.cuh"

namespace fusegen {

// A launch in which each of the `cluster` blocks that share a row has `threads` threads, with
// `vectors` vectors each. threads is 0 where rows do not fit.
struct RowShared {
  int threads;
  int vectors;
  int cluster;
  int resident;  // blocks that a multiprocessor has shared memory and registers for
  int64_t bytes;  // of shared memory of a block
};

// Threads of all blocks of a multiprocessor: as many as have 64 registers each.
constexpr int kRowSharedThreads = 1024;
// Resident blocks, at most: while one of them waits for memory or for sums, others go on.
constexpr int kRowSharedBlocks = 4;
// Bytes that the system takes of a multiprocessor's shared memory for each block.
constexpr int64_t kReservedBytes = 1024;

// The part of a row that a block has, if `cluster` blocks share its vectors of `vector_bytes`: with
// as many resident blocks as there is shared memory for. Each has `fixed` bytes besides.
inline RowShared row_shared_part(
    int64_t row_vectors, int64_t vector_bytes, int64_t fixed, int cluster, const Target& target) {
  const int64_t own = ceil_div(row_vectors, cluster);
  for (int resident = kRowSharedBlocks; resident > 0; --resident) {
    const int64_t most = kRowSharedThreads / resident / 32 * 32;
    const int64_t threads = std::min(most, ceil_div(own, 32) * 32);
    const int64_t vectors = ceil_div(own, threads);
    const int64_t bytes = fixed + threads * vectors * vector_bytes;
    if (bytes <= target.shared_bytes &&
        resident * (bytes + kReservedBytes) <= target.shared_bytes + kReservedBytes) {
      return {int(threads), int(vectors), cluster, resident, bytes};
    }
  }
  return {0, 0, cluster, 0, 0};
}

// The fewest blocks for each row with which two are resident, as blocks of a cluster wait for each
// other; more where there are so few rows that multiprocessors would have none.
inline RowShared row_shared_shape(
    int64_t rows, int64_t row_vectors, int64_t vector_bytes, int64_t fixed, const Target& target) {
  RowShared best{};
  for (int cluster = 1; cluster <= target.most_cluster; cluster *= 2) {
    const bool few = rows * cluster <= usable_multiprocessors(cluster, target.multiprocessors);
    if (best.resident >= 2 && (!few || row_vectors < cluster * kRowSharedThreads)) break;
    const RowShared part =
        row_shared_part(row_vectors, vector_bytes, fixed, cluster, target);
    if (part.threads > 0) best = part;
  }
  return best;
}

// How many rows the device has at a time, by the launch bounds.
inline int64_t row_shared_at_once(const RowShared& row, const Target& target) {
  const int64_t usable = usable_multiprocessors(row.cluster, target.multiprocessors);
  return std::max<int64_t>(usable * row.resident / row.cluster, 1);
}

// How many rows are at work at a time, of which the grid has blocks for `most`. Rows of a block
// begin at the same place in a vector, so they are a multiple of `period`, and all blocks have
// about as many of them.
inline int64_t row_shared_blocks(int64_t rows, int64_t most, int period) {
  const int64_t at_once = std::max<int64_t>(most / period, 1) * period;
  const int64_t iterations = ceil_div(rows, at_once);
  return ceil_div(ceil_div(rows, iterations), period) * period;
}

}  // namespace fusegen
