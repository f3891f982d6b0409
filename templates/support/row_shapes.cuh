// Launch configurations of kernels that have rows, or groups of their channels, in registers.
//
// A segment is a row, or a group of a row's channels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <cuda_runtime.h>

#include "row_work.cuh"
#include "samples.cuh"
#include "shapes.cuh"

namespace fusegen {

// A launch in which a segment has `lanes` threads, of one block or of each block of a cluster, with
// `items` vectors each. In an iteration a block has segments_per_block neighbouring segments of
// rows_per_iteration rows. position_of() says which thread has which.
struct Row {
  dim3 grid;
  dim3 block;
  int lanes;
  int segments_per_block;
  int rows_per_iteration;
  int items;
  int period;       // rows until one begins at a multiple of a vector again
  bool full_block;  // as row_takes_full_block() has it
  int cluster;      // blocks that share a segment
  int resident;     // blocks that a multiprocessor has registers for, by the launch bounds
  int64_t step;     // rows from one iteration of a block to the next
  bool second_read_pays = false;  // the two-pass schedule is faster
  int64_t sample_blocks = 0;      // with sums of samples: blocks that share the rows of one
};

// Lanes of a warp for a segment of up to 32 vectors. The sum over a power of two is simpler, so the
// lanes are another number only where a warp then has more segments.
inline int row_lanes(int64_t vectors) {
  const int power = power_of_two_from(vectors);
  return 32 / vectors > 32 / power ? int(vectors) : power;
}

// Neighbouring segments of a row in a block, where each of its warps has `per_warp`: as many as a
// warp has, or down to half of them where fewer threads are idle after a row's last segment and
// after the block's last row. Not more: the more rows a block has, the fewer are its partial
// results.
inline int row_segments_per_block(int64_t groups, int per_warp, int warps) {
  const int most = groups < per_warp ? int(groups) : per_warp;
  const int places = per_warp * warps;
  int best = most;
  for (int segments = most - 1; segments * 2 >= most; --segments) {
    const int64_t blocks = ceil_div(groups, segments), blocks_of_best = ceil_div(groups, best);
    if (places / segments * blocks_of_best > places / best * blocks) best = segments;
  }
  return best;
}

// The most iterations of a block where warps share sectors of memory, as far as the grid goes. The
// warp with the other part of a sector must not fall back by more than the L2 holds, else each of
// them reads and writes the sector separately. Warps that start together stay together that long.
// With column sums there are few blocks, as each of them has partial results.
constexpr int kRowMostIterations = 32;
constexpr int kSector = 16;  // elements: one sector of 16 bits, two of float32

// The fewest iterations per block, of `iterations` in all. With column sums a block has partial
// results of each column, which stay small beside four rows; but three of four multiprocessors have
// a block, if there are iterations for as many.
inline int64_t least_iterations(
    const RowWork& work, int64_t iterations, int rows_per_iteration, int multiprocessors) {
  if (work.sums == 0) return 1;
  const int64_t share = (iterations + multiprocessors / 2) / multiprocessors;
  return std::max<int64_t>(1, std::min(share, ceil_div(4, rows_per_iteration)));
}

// Whether warps with `per_warp` segments each share sectors, in blocks of `segments` segments of
// `rows` rows: whether a warp, or a block, may begin within a sector.
inline bool shares_sectors(int64_t groups, int64_t length, int per_warp, int segments, int rows) {
  const int64_t row = groups * length;
  if (segments == groups) return per_warp * length % kSector != 0 || rows * row % kSector != 0;
  return std::gcd(per_warp, segments) * length % kSector != 0 || row % kSector != 0;
}

// Sets the grid and the step: as many blocks as run at a time, `resident` per multiprocessor.
inline void set_row_blocks(
    Row& row, const Shapes& shapes, const RowWork& work, int64_t rows, int64_t groups,
    int64_t length, int resident, int multiprocessors) {
  const int64_t blocks_per_row = ceil_div(groups, row.segments_per_block);
  // Unless vectors are unaligned, all iterations of a thread begin at the same place in a vector,
  // so the number of blocks is a multiple of the period.
  const int usable = usable_multiprocessors(row.cluster, multiprocessors);
  const int64_t blocks_per_step = blocks_per_row * row.cluster * row.period;
  int64_t down = int64_t(resident) * usable * shapes.row_waves / blocks_per_step;
  if (down < 1) down = 1;
  const int64_t iterations = ceil_div(rows, row.rows_per_iteration);
  const int64_t blocks = iterations * blocks_per_row * row.cluster;
  const int64_t least = least_iterations(work, blocks, row.rows_per_iteration, multiprocessors);
  const int64_t most = ceil_div(iterations, least * row.period);
  const int per_warp = row.lanes <= 32 ? 32 / row.lanes : 1;
  const bool shares =
      shares_sectors(groups, length, per_warp, row.segments_per_block, row.rows_per_iteration);
  if (shares && work.sums == 0) down *= ceil_div(most, down * kRowMostIterations);
  if (down > most) down = most;
  if (down * row.period > 65535) down = 65535 / row.period;
  row.grid = dim3(unsigned(blocks_per_row), unsigned(down * row.period), unsigned(row.cluster));
  row.step = down * row.rows_per_iteration * row.period;
}

// The same with sums of samples. Blocks go on to other rows of a sample as they do to others.
inline void set_row_blocks_of_samples(
    Row& row, const Shapes& shapes, int64_t rows, int64_t samples, int64_t groups,
    int multiprocessors) {
  const int64_t blocks_per_row = ceil_div(groups, row.segments_per_block);
  const int64_t at_once = int64_t(row.resident) * multiprocessors * shapes.row_waves;
  const int64_t iterations =
      ceil_div(rows / samples, int64_t(row.rows_per_iteration) * row.period);
  const int64_t most =
      std::max<int64_t>(iterations / ceil_div(4, row.rows_per_iteration), 1) * row.period;
  row.sample_blocks = blocks_of_sample(samples, most, row.period, at_once / blocks_per_row);
  row.grid = dim3(unsigned(blocks_per_row), sample_grid(samples, row.sample_blocks));
  row.step = row.sample_blocks * row.rows_per_iteration;
}

// All of a launch but the number of blocks, which set_row_blocks() decides. items is 0 where a
// segment is longer than `most_items` vectors for each thread of a block or, with column sums, of a
// cluster. `doubles`: whether two vectors per thread are faster than one; with column sums that is
// about long segments only.
inline Row row_shape(
    const RowWork& work, int64_t rows, int64_t groups, int64_t length, int vector, bool packed,
    int most_items, bool doubles, int multiprocessors) {
  // A segment that does not begin at a multiple of a vector overlaps with up to one more.
  const auto vectors = [&](int items) {
    const bool unaligned = row_has_unaligned(packed, items, vector, work.bytes, work.sums > 0);
    return packed || unaligned ? ceil_div(length, vector) : (length + vector - 2) / vector + 1;
  };
  const Row none{dim3(1), dim3(1), 0, 0, 0, 0, 1, false, 1, 0, 0};
  Row shape{dim3(1), dim3(kRowOne), 1, 1, 1, 1, 1, false, 1, 0, 0};
  if (work.threads < kRowOne) return none;
  // Iterations of two vectors for 512 threads of each multiprocessor. Below one, a thread with
  // column sums has one vector, though a segment then takes two warps.
  const int64_t iterations =
      rows * groups * length / (int64_t(2) * 512 * vector * multiprocessors);
  // Masked vectors of eight elements are many instructions: smaller blocks are faster.
  const bool masked = !packed && vector > 4 && work.sums == 0;
  const bool two_fit = vectors(most_items) <= 32 * most_items;
  if (vectors(1) <= 32 || (two_fit && (work.sums == 0 || iterations >= 1))) {
    // Short segments: some lanes of a warp each. Two vectors per thread where one leaves more lanes
    // idle and there is an iteration for them, or where `doubles` says so and no more lanes are
    // idle. Not with a single lane: the vectors of neighbouring lanes would be two apart.
    const int half = row_lanes(ceil_div(vectors(most_items), most_items));
    shape.lanes = vectors(1) <= 32 ? row_lanes(vectors(1)) : half;
    const int per_warp_of_one = 32 / shape.lanes * most_items, per_warp_of_two = 32 / half;
    const bool fuller = iterations >= 1 && per_warp_of_two > per_warp_of_one;
    const bool twice =
        packed && doubles && work.sums == 0 && half > 1 && per_warp_of_two == per_warp_of_one;
    if (vectors(1) > 32 || fuller || twice) {
      shape.items = most_items;
      shape.lanes = half;
    }
    const int per_warp = 32 / shape.lanes;
    const int warps = kRowOne / (masked ? 64 : 32);
    shape.block = dim3(unsigned(warps * 32));
    shape.segments_per_block = row_segments_per_block(groups, per_warp, warps);
    shape.rows_per_iteration = warps * per_warp / shape.segments_per_block;
  } else {
    // Long segments: one block each, of up to 256 threads, then with two items, a multiple of 32;
    // or a cluster each. Fewer warps exchange their results sooner: where `doubles` says so, two
    // items from the beginning, if no more threads are idle then.
    const auto threads = [&](int items) { return row_block_threads(vectors(items), items, 1); };
    const bool twice = doubles && threads(most_items) * most_items == threads(1);
    if (twice || vectors(1) > kRowOne) shape.items = most_items;
    const bool full_block =
        shape.items > 1 && row_takes_full_block(work, vector, packed, threads(2), iterations);
    if (work.sums > 0 && shape.items > 1 && !full_block) {
      shape.cluster = row_cluster(work, vector, vectors(2), iterations);
      if (shape.cluster == 0) return none;
    }
    const int64_t needed = row_block_threads(vectors(shape.items), shape.items, shape.cluster);
    if (needed > (shape.items > 1 ? work.threads : kRowOne)) return none;
    shape.lanes = int(needed);
    const bool odd = length % vector != 0;
    shape.second_read_pays = shape.cluster == 1 &&
        second_read_pays(work, shape.lanes, rows * groups, odd, iterations, multiprocessors);
    shape.block = dim3(unsigned(shape.lanes));
    shape.full_block = full_block;
  }
  const bool unaligned = row_has_unaligned(packed, shape.items, vector, work.bytes, work.sums > 0);
  if (!packed && !unaligned) shape.period = row_period(groups * length, vector);
  shape.resident = row_resident(work, shape.items, vector, shape.block.x, shape.full_block);
  return shape;
}

}  // namespace fusegen
