// Launch shapes of kernels that hold rows, or groups of their channels, in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <cuda_runtime.h>

#include "row_work.cuh"
#include "shapes.cuh"

namespace fusegen {

// A launch in which `lanes` threads hold one segment (a row, or a group of its channels) in
// registers, or so many of each block of a cluster, `items` vectors each, and a block has `across`
// neighbouring segments of `height` rows at a time. seat_of() in reduce.cuh says which thread has
// what.
struct Row {
  dim3 grid;
  dim3 block;
  int lanes;
  int across;
  int height;
  int items;
  int period;
  bool large;    // as row_is_large() has it
  int cluster;   // blocks that share a segment
  int resident;  // blocks that a multiprocessor has registers for, by the launch bounds
  int64_t step;  // rows from one turn of a block to the next
};

// Lanes of a warp for a segment of up to 32 vectors. The sum over a power of two is the simpler
// one, so there are fewer only where a warp then holds more segments.
inline int row_lanes(int64_t vectors) {
  const int power = power_of_two_from(vectors);
  return 32 / vectors > 32 / power ? int(vectors) : power;
}

// Neighbouring segments of a row that a block has, where its warps hold `a_warp` each: as many as a
// warp, or down to half of them where fewer places stay empty, behind a row's last segment and
// behind the block's last row. Not more: the more rows a block has, the fewer are its partial
// results.
inline int row_across(int64_t groups, int a_warp, int warps) {
  const int most = groups < a_warp ? int(groups) : a_warp;
  const int places = a_warp * warps;
  int best = most;
  for (int across = most - 1; across * 2 >= most; --across) {
    const int64_t blocks = ceil_div(groups, across), blocks_of_best = ceil_div(groups, best);
    if (places / across * blocks_of_best > places / best * blocks) best = across;
  }
  return best;
}

// The most turns of a block where warps share sectors of memory, as far as the grid goes. The warp
// that has the rest of a sector must not fall behind by more than the L2 holds, or each of them
// reads it, and writes its part of it, alone; warps that start together stay together that long.
// With column sums blocks are few, since each of them has partial results.
constexpr int kRowTurns = 32;
constexpr int kSector = 16;  // elements: one of 16 bits, two of float32

// The fewest turns of a block, of `turns` that all of them take. With column sums it has partial
// results for each column, which stay small beside four rows; but three of four multiprocessors
// have a block, if there are turns for as many.
inline int64_t least_turns(
    const RowWork& work, int64_t turns, int height, int multiprocessors) {
  if (work.sums == 0) return 1;
  const int64_t share = (turns + multiprocessors / 2) / multiprocessors;
  return std::max<int64_t>(1, std::min(share, ceil_div(4, height)));
}

// Whether warps with `a_warp` segments each share sectors, in blocks of `across` segments of
// `height` rows: whether a warp, or a block, may begin within one.
inline bool shares_sectors(int64_t groups, int64_t length, int a_warp, int across, int height) {
  const int64_t row = groups * length;
  if (across == groups) return a_warp * length % kSector != 0 || height * row % kSector != 0;
  return std::gcd(a_warp, across) * length % kSector != 0 || row % kSector != 0;
}

// Sets the grid and the step: as many blocks as run at a time, `resident` on a multiprocessor.
inline void set_row_blocks(
    Row& row, const Shapes& shapes, const RowWork& work, int64_t rows, int64_t groups,
    int64_t length, int resident, int multiprocessors) {
  const int64_t across = ceil_div(groups, row.across);
  // But for runs, all turns of a thread begin at the same place in a vector: blocks come by the
  // period.
  const int usable = usable_multiprocessors(row.cluster, multiprocessors);
  const int64_t apart = across * row.cluster * row.period;
  int64_t down = int64_t(resident) * usable * shapes.row_waves / apart;
  if (down < 1) down = 1;
  const int64_t turns = ceil_div(rows, row.height);
  const int64_t blocks = turns * across * row.cluster;
  const int64_t least = least_turns(work, blocks, row.height, multiprocessors);
  const int64_t most = ceil_div(turns, least * row.period);
  const int a_warp = row.lanes <= 32 ? 32 / row.lanes : 1;
  const bool shares = shares_sectors(groups, length, a_warp, row.across, row.height);
  if (shares && work.sums == 0) down *= ceil_div(most, down * kRowTurns);
  if (down > most) down = most;
  if (down * row.period > 65535) down = 65535 / row.period;
  row.grid = dim3(unsigned(across), unsigned(down * row.period), unsigned(row.cluster));
  row.step = down * row.height * row.period;
}

// All of a launch but how many blocks it has, which set_row_blocks() decides. items is 0 where a
// segment is longer than `most_items` vectors for each thread of a block or, with column sums, of a
// cluster, and where the two-pass schedule is faster, if the sizes decide. `doubles`: whether two
// vectors a thread are faster than one; with column sums that is about long segments only.
inline Row row_shape(
    const Shapes& shapes, const RowWork& work, int64_t rows, int64_t groups, int64_t length,
    int vector, bool packed, int most_items, bool doubles, int multiprocessors) {
  // Where a segment does not begin at a multiple of a vector, it touches up to one more.
  const auto vectors = [&](int items) {
    const bool runs = row_has_runs(packed, items, vector, work.bytes, work.sums > 0);
    return packed || runs ? ceil_div(length, vector) : (length + vector - 2) / vector + 1;
  };
  const Row none{dim3(1), dim3(1), 0, 0, 0, 0, 1, false, 1, 0, 0};
  Row shape{dim3(1), dim3(kRowOne), 1, 1, 1, 1, 1, false, 1, 0, 0};
  if (work.threads < kRowOne) return none;
  // Turns of two vectors for 512 threads of each multiprocessor. Without one, a thread with column
  // sums has one vector, though a segment then takes two warps.
  const int64_t turns = rows * groups * length / (int64_t(2) * 512 * vector * multiprocessors);
  // Eight elements that do not begin with a vector are many instructions: smaller blocks do better.
  const bool ragged = !packed && vector > 4 && work.sums == 0;
  const bool two_fit = vectors(most_items) <= 32 * most_items;
  if (vectors(1) <= 32 || (two_fit && (work.sums == 0 || turns >= 1))) {
    // Short segments: some lanes of a warp each, with two vectors where one leaves more lanes idle
    // and there is a turn for them, or where that is asked for and leaves no more of them idle. Not
    // a lane alone: its neighbours' vectors would be two apart.
    const int half = row_lanes(ceil_div(vectors(most_items), most_items));
    shape.lanes = vectors(1) <= 32 ? row_lanes(vectors(1)) : half;
    const int a_warp_of_one = 32 / shape.lanes * most_items, a_warp_of_two = 32 / half;
    const bool fuller = turns >= 1 && a_warp_of_two > a_warp_of_one;
    const bool twice =
        packed && doubles && work.sums == 0 && half > 1 && a_warp_of_two == a_warp_of_one;
    if (vectors(1) > 32 || fuller || twice) {
      shape.items = most_items;
      shape.lanes = half;
    }
    const int a_warp = 32 / shape.lanes;
    const int warps = kRowOne / (ragged ? 64 : 32);
    shape.block = dim3(unsigned(warps * 32));
    shape.across = row_across(groups, a_warp, warps);
    shape.height = warps * a_warp / shape.across;
  } else {
    // Long segments: one block each, of up to 256 threads, then with two items, in whole warps; or
    // a cluster each. Fewer warps exchange their results sooner: where it is asked for, with two
    // items from the beginning, if that leaves no more threads idle.
    const auto threads = [&](int items) { return row_block_threads(vectors(items), items, 1); };
    const bool twice = doubles && threads(most_items) * most_items == threads(1);
    if (twice || vectors(1) > kRowOne) shape.items = most_items;
    const bool large = shape.items > 1 && row_is_large(work, vector, packed, threads(2), turns);
    if (work.sums > 0 && shape.items > 1 && !large) {
      shape.cluster = row_cluster(work, vector, vectors(2), turns);
      if (shape.cluster == 0) return none;
    }
    const int64_t needed = row_block_threads(vectors(shape.items), shape.items, shape.cluster);
    if (needed > (shape.items > 1 ? work.threads : kRowOne)) return none;
    shape.lanes = int(needed);
    const bool odd = length % vector != 0;
    if (shapes.schedule == kAutomatic && shape.cluster == 1 &&
        second_read_pays(work, shape.lanes, rows * groups, odd, turns, multiprocessors)) {
      return none;
    }
    shape.block = dim3(unsigned(shape.lanes));
    shape.large = large;
  }
  const bool runs = row_has_runs(packed, shape.items, vector, work.bytes, work.sums > 0);
  if (!packed && !runs) shape.period = row_period(groups * length, vector);
  shape.resident = row_resident(work, shape.items, vector, shape.block.x, shape.large);
  return shape;
}

}  // namespace fusegen
