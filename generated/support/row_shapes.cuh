// Launch shapes of kernels that hold rows, or groups of their channels, in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <cuda_runtime.h>

#include "shapes.cuh"

namespace fusegen {

// A launch in which `lanes` threads hold one segment (a row, or a group of its channels) in
// registers, `items` vectors each, and a block has `across` neighbouring segments of `height` rows
// at a time. seat_of() in reduce.cuh says which thread has what.
struct Row {
  dim3 grid;
  dim3 block;
  int lanes;
  int across;
  int height;
  int items;
  int period;
  bool large;    // as row_is_large() has it
  int resident;  // blocks that a multiprocessor has registers for, by the launch bounds
  int64_t step;  // rows from one turn of a block to the next
};

// What a row kernel has to do, by which its launch shape is chosen.
struct RowWork {
  int sums;       // of each column, that it takes besides
  int blocks;     // as row_threads() and row_blocks() have it
  int constants;  // of each column
  int again;      // tensors with all elements that the split schedule reads a second time
  int values;     // that are computed of an element
  int bytes;      // of an element in memory
  int threads;    // of a block with two vectors each, at most: row_most_threads()
};

// Threads of a block at most: with one vector each, with two, and in the instance for large blocks.
constexpr int kRowOne = 256, kRowTwo = 512, kRowLarge = 1024;

// Threads of a block with two vectors each, at most. What they keep of their columns in shared
// memory takes `staged` bytes each of the `shared` ones.
constexpr int row_most_threads(bool large, int64_t staged = 0, int64_t shared = 0) {
  const int most = large ? kRowLarge : kRowTwo;
  return staged * most <= shared ? most : int(shared / staged) / 32 * 32;
}

// The launch bounds of a row kernel, which decide how many registers a thread has: threads of a
// block, and blocks that a multiprocessor holds. With one item those are `blocks` where that is
// four neighbours, or one less. With two items of four neighbours, where a thread has little else
// to keep, the bound is higher than any block, for more of them at a time.
constexpr int row_threads(int items, int vector, int blocks, bool large) {
  if (items == 1) return kRowOne;
  return large ? kRowLarge : vector == 4 && blocks > 3 ? 768 : kRowTwo;
}
constexpr int row_blocks(int items, int vector, int blocks) {
  return items > 1 ? 1 : vector > 4 ? blocks - 1 : blocks;
}

// Whether threads have runs, where segments do not begin at multiples of a vector; otherwise they
// have the vectors that a segment touches. Those are fewer accesses to memory, but as many as one
// vector more: runs pay where that is many of a segment's threads, as measured. With two items a
// segment is longer, and in 16 bits a run is more accesses, too many for a kernel that does little
// else.
constexpr bool row_has_runs(bool packed, int items, int vector, int bytes, bool sums) {
  return !packed && items == 1 && (bytes > 2 || (sums && vector > 4));
}
template <typename T, int kVec, bool kPacked, int kItems, bool kSums>
constexpr bool kHasRuns = row_has_runs(kPacked, kItems, kVec, sizeof(T), kSums);

// Warps of a row kernel's block, at most.
template <int kItems, bool kLarge>
constexpr int kRowWarps = (kItems == 1 ? kRowOne : kLarge ? kRowLarge : kRowTwo) / 32;

// Whether sums of columns in shared memory cost a kernel little, beside what the split schedule
// reads again.
inline bool sums_are_light(const RowWork& work) {
  return work.sums + work.constants <= 3 || work.again > 2;
}

// Whether a launch with two vectors a thread takes the instance of a row kernel for large blocks.
// It has 64 registers a thread, for 1024 threads of a multiprocessor, and keeps constants and sums
// of its columns in shared memory. The usual instance has registers for one block at a time that is
// larger than half its bound. With column sums that is still faster, unless the block is not much
// larger, elements have 16 bits, and there are many `turns` of 512 threads.
inline bool row_is_large(const RowWork& work, int vector, int threads, int64_t turns) {
  const bool alone = threads * 2 > row_threads(2, vector, work.blocks, false);
  if (work.sums == 0) return alone;
  const bool little_more = alone && threads <= 320 && work.bytes == 2;
  const bool many = turns >= (sums_are_light(work) ? 4 : 16);
  return threads > kRowTwo || (work.threads > kRowTwo && little_more && many);
}

// How many blocks of `threads` a multiprocessor has registers for, by these bounds. They are given
// to warps: there are more blocks that are smaller.
inline int row_resident(const RowWork& work, int items, int vector, int threads, bool large) {
  const int bound = row_threads(items, vector, work.blocks, large);
  return bound * row_blocks(items, vector, work.blocks) / threads;
}

// Whether the threads of a row kernel have twice as much of a segment as they must, `share`
// elements: fewer instructions for each of them, and fewer warps to exchange the results of a long
// segment, but beginnings and ends that take longer. It pays from half a dozen turns of 512 threads
// a multiprocessor on.
inline bool row_doubles(const Shapes& shapes, int64_t elements, int share, int multiprocessors) {
  if (shapes.row_share != 0) return shapes.row_share == 2;
  return elements >= int64_t(6) * 512 * share * multiprocessors;
}

// Whether a kernel with column sums can have `wide` elements a thread, 16 bytes, of a segment of a
// warp. Without vectors they are runs, and words of three tensors to read take longer than what is
// saved by fewer threads, but for the shortest.
inline bool row_can_be_wide(const RowWork& work, bool packed, int64_t length, int wide) {
  if (packed) return length % wide == 0 && length <= 32 * wide;
  return length <= (work.again > 2 ? 4 : 32) * wide;
}

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
  int64_t down = int64_t(resident) * multiprocessors * shapes.row_waves / (across * row.period);
  if (down < 1) down = 1;
  const int64_t turns = ceil_div(rows, row.height);
  const int64_t least = least_turns(work, turns * across, row.height, multiprocessors);
  const int64_t most = ceil_div(turns, least * row.period);
  const int a_warp = row.lanes <= 32 ? 32 / row.lanes : 1;
  const bool shares = shares_sectors(groups, length, a_warp, row.across, row.height);
  if (shares && work.sums == 0) down *= ceil_div(most, down * kRowTurns);
  if (down > most) down = most;
  if (down * row.period > 65535) down = 65535 / row.period;
  row.grid = dim3(unsigned(across), unsigned(down * row.period));
  row.step = down * row.height * row.period;
}

// Whether the split schedule is faster for `segments` of more than a warp, as measured with column
// sums. `ragged`: they may begin within a vector. `turns`: as row_is_large() has it.
inline bool second_read_pays(
    const RowWork& work, int lanes, int64_t segments, bool ragged, int64_t turns,
    int multiprocessors) {
  if (work.sums == 0) return false;
  // More than the usual instance holds: few turns, or much to do for little to read, but for ragged
  // ones, of which the split schedule is slow. In 16 bits there is half as much to read, for as
  // many sums.
  if (lanes > kRowTwo) {
    const bool little = lanes <= 768 || turns < 8;
    const bool heavy = work.bytes == 2 ? little && !sums_are_light(work) : work.values > 16;
    return turns < 4 || (heavy && !ragged);
  }
  // Large blocks of the usual instance, of which a multiprocessor has a quarter of one to four
  // where they are ragged, or half of one to two with many constants.
  const int some = ragged ? 4 : 2;
  const bool large = ragged ? lanes > 352 : lanes > 448 && work.constants > 3;
  return large && segments * some > multiprocessors && segments <= some * multiprocessors;
}

// Whether a long segment that does not begin at a multiple of a vector may have two a thread. With
// column sums in float32 that takes the last registers.
inline bool ragged_doubles(const RowWork& work) {
  if (work.sums == 0 || work.bytes == 2) return true;
  const bool staged = work.constants > 3;  // where they take none
  return staged || work.values + work.sums + work.constants <= 21;
}

// All of a launch but how many blocks it has, which set_row_blocks() decides.
// items is 0 where a segment is longer than `most_items` vectors for each thread of a block, and
// where the split schedule is faster, if the sizes decide. `doubles`: whether two vectors a thread
// are faster than one; with column sums that is about long segments only.
inline Row row_shape(
    const Shapes& shapes, const RowWork& work, int64_t rows, int64_t groups, int64_t length,
    int vector, bool packed, int most_items, bool doubles, int multiprocessors) {
  // Where a segment does not begin at a multiple of a vector, it touches up to one more.
  const auto vectors = [&](int items) {
    const bool runs = row_has_runs(packed, items, vector, work.bytes, work.sums > 0);
    return packed || runs ? ceil_div(length, vector) : (length + vector - 2) / vector + 1;
  };
  const Row none{dim3(1), dim3(1), 0, 0, 0, 0, 1, false, 0, 0};
  Row shape{dim3(1), dim3(kRowOne), 1, 1, 1, 1, 1, false, 0, 0};
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
    // Long segments: one block each, of up to 256 threads, then with two items, in whole warps.
    // Fewer warps exchange their results sooner: where it is asked for, with two items from the
    // beginning, if that leaves no more threads idle.
    const auto threads = [&](int items) { return ceil_div(vectors(items), 32 * items) * 32; };
    const bool twice = doubles && threads(most_items) * most_items == threads(1);
    if (twice || vectors(1) > kRowOne) shape.items = most_items;
    const int64_t needed = threads(shape.items);
    if (needed > (shape.items > 1 ? work.threads : kRowOne)) return none;
    shape.lanes = int(needed);
    const bool odd = length % vector != 0;
    if (shapes.schedule == kAutomatic &&
        second_read_pays(work, shape.lanes, rows * groups, odd, turns, multiprocessors)) {
      return none;
    }
    shape.block = dim3(unsigned(shape.lanes));
    shape.large = row_is_large(work, vector, shape.lanes, turns);
  }
  const bool runs = row_has_runs(packed, shape.items, vector, work.bytes, work.sums > 0);
  if (!packed && !runs) shape.period = row_period(groups * length, vector);
  shape.resident = row_resident(work, shape.items, vector, int(shape.block.x), shape.large);
  return shape;
}

}  // namespace fusegen
