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
  int resident;  // blocks that a multiprocessor holds by the launch bounds
  int64_t step;  // rows from one turn of a block to the next
};

// What a row kernel has to do, by which its launch shape is chosen.
struct RowWork {
  bool sums;      // also takes sums of columns
  int blocks;     // as row_threads() and row_blocks() have it
  int constants;  // of each column; with more than two items they are read again for each row
  int again;      // tensors with all elements that the split schedule reads a second time
  bool before;    // costly functions come before the last sums; the split schedule repeats them
};

// Whether a launch takes the instance of a row kernel for large blocks: without column sums, with
// two vectors of more than four neighbours. It has as many registers as two of these blocks at a
// time leave it; blocks of up to kRowUsual threads are several at a time anyway.
constexpr int kRowUsual = 256, kRowLarge = 640;
constexpr bool has_large_rows(int vector) { return vector > 4; }
inline bool row_is_large(const RowWork& work, int items, int vector, int threads) {
  const bool two = threads > kRowUsual && threads <= kRowLarge / 2;
  return two && items == 2 && has_large_rows(vector) && !work.sums;
}

// The launch bounds of a row kernel, which decide how many registers a thread has: threads of a
// block, and blocks that a multiprocessor holds. With one item those are `blocks` where that is
// four neighbours, or one less. With two items of four neighbours, where a thread has little else
// to keep, and in the instance for large blocks the bound is higher than any block, for more of
// them at a time.
constexpr int row_threads(int items, int vector, int blocks, bool large) {
  if (items == 1) return kRowUsual;
  if (items > 2) return 512;
  return large ? kRowLarge : vector == 4 && blocks > 3 ? 768 : 512;
}
constexpr int row_blocks(int items, int vector, int blocks) {
  return items > 1 ? 1 : vector > 4 ? blocks - 1 : blocks;
}

// How many blocks of `threads` a multiprocessor holds by these bounds. Registers are given to
// warps: there is room for more blocks that are smaller.
inline int row_resident(const RowWork& work, int items, int vector, int threads) {
  const bool large = row_is_large(work, items, vector, threads);
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
  if (!work.sums) return 1;
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
  // All turns of a thread begin at the same place in a vector: blocks come by the period.
  int64_t down = int64_t(resident) * multiprocessors * shapes.row_waves / (across * row.period);
  if (down < 1) down = 1;
  const int64_t turns = ceil_div(rows, row.height);
  const int64_t least = least_turns(work, turns * across, row.height, multiprocessors);
  const int64_t most = ceil_div(turns, least * row.period);
  const int a_warp = row.lanes <= 32 ? 32 / row.lanes : 1;
  const bool shares = shares_sectors(groups, length, a_warp, row.across, row.height);
  if (shares && !work.sums) down *= ceil_div(most, down * kRowTurns);
  if (down > most) down = most;
  if (down * row.period > 65535) down = 65535 / row.period;
  row.grid = dim3(unsigned(across), unsigned(down * row.period));
  row.step = down * row.height * row.period;
}

// Whether the split schedule is faster for `segments` of more than a warp, as measured. `ragged`:
// they may begin within a vector.
inline bool second_read_pays(
    const RowWork& work, const Row& row, int64_t segments, int64_t vectors, int vector, bool ragged,
    int multiprocessors) {
  // Large blocks with column sums, of which a multiprocessor has a quarter of one to four where
  // they are ragged, or half of one to two with many constants.
  if (work.sums) {
    const int some = ragged ? 4 : 2;
    const bool large = ragged ? row.lanes > 352 : row.lanes > 448 && work.constants > 3;
    return large && segments * some > multiprocessors && segments <= some * multiprocessors;
  }
  // With more than two items no row is on its way while another one is used, and each row reads the
  // constants anew. To read two tensors again takes longer than that.
  if (row.items <= 2 || work.again > 1) return false;
  const bool wide = row.lanes > kRowUsual;
  if (row.items == 4) return wide && segments > multiprocessors;
  const bool few = segments <= 16 * multiprocessors;
  const bool fills = vectors * 8 >= int64_t(row.lanes) * row.items * 7;
  return work.constants > 1 && (wide || few || !(fills || work.before));
}

// All of a launch but how many blocks it has, which set_row_blocks() decides.
// items is 0 where a segment is longer than `most_items` vectors for each thread of a block, or
// where the split schedule is faster, if the sizes decide. `doubles`: whether two vectors a thread
// are faster than one; with column sums that is about long segments only.
inline Row row_shape(
    const Shapes& shapes, const RowWork& work, int64_t rows, int64_t groups, int64_t length,
    int vector, bool packed, int most_items, bool doubles, int multiprocessors) {
  // Where a segment does not begin at a multiple of a vector, it touches up to one more.
  const int64_t vectors = packed ? ceil_div(length, vector) : (length + vector - 2) / vector + 1;
  const int two = std::min(2, most_items);
  const int period = packed ? 1 : row_period(groups * length, vector);
  const Row none{dim3(1), dim3(1), 0, 0, 0, 0, 1, false, 0, 0};
  Row shape{dim3(1), dim3(kRowUsual), 1, 1, 1, 1, period, false, 0, 0};
  // Whether there is a turn of two vectors for 512 threads of each multiprocessor. If not, a thread
  // with column sums has one, though a segment then takes two warps.
  const bool many = rows * groups * length >= int64_t(2) * 512 * vector * multiprocessors;
  // Eight elements that do not begin with a vector are many instructions: smaller blocks do better.
  const bool ragged = !packed && vector > 4 && !work.sums;
  if (vectors <= (work.sums && !many ? 32 : 32 * two)) {
    // Short segments: some lanes of a warp each, with two vectors where one leaves more lanes idle
    // and there is a turn for them, or where that is asked for and leaves no more of them idle. Not
    // a lane alone: its neighbours' vectors would be two apart.
    const int half = row_lanes(ceil_div(vectors, two));
    shape.lanes = vectors <= 32 ? row_lanes(vectors) : half;
    const int a_warp_of_one = 32 / shape.lanes * two, a_warp_of_two = 32 / half;
    const bool fuller = many && a_warp_of_two > a_warp_of_one;
    const bool twice = doubles && !work.sums && half > 1 && a_warp_of_two == a_warp_of_one;
    if (vectors > 32 || fuller || twice) {
      shape.items = two;
      shape.lanes = half;
    }
    const int a_warp = 32 / shape.lanes;
    const int warps = kRowUsual / (ragged ? 64 : 32);
    shape.block = dim3(unsigned(warps * 32));
    shape.across = row_across(groups, a_warp, warps);
    shape.height = warps * a_warp / shape.across;
  } else {
    // Long segments: one block each, of up to 256 threads, then with a few items, then of up to
    // 512, in whole warps. Fewer warps exchange their results sooner: where it is asked for, with
    // two items from the beginning, if that leaves no more threads idle.
    const auto threads = [&](int items) { return int(ceil_div(vectors, 32 * items) * 32); };
    if (doubles && threads(two) * two == threads(1)) shape.items = two;
    int most_threads = kRowUsual;
    while (int64_t(most_threads) * shape.items < vectors) {
      const bool enough = shape.items >= shapes.row_items || shape.items == most_items;
      if ((most_threads < 512 && enough) || shape.items == most_items) {
        most_threads *= 2;
      } else {
        shape.items *= 2;
      }
      if (most_threads > (shape.items > 1 ? 512 : kRowUsual)) return none;
    }
    // Where by the launch bounds a block of not much more than 256 threads leaves no room for a
    // second one, half as many threads do better, with twice the vectors; not with four of 16 bytes
    // and 16 bits.
    const int needed = threads(shape.items);
    const bool alone = row_resident(work, shape.items, vector, needed) == 1;
    const bool fewer = alone && needed <= 352 && !has_large_rows(vector);
    if (fewer && shape.items * 2 <= most_items) shape.items *= 2;
    shape.lanes = threads(shape.items);
    if (shapes.schedule == kAutomatic &&
        second_read_pays(
            work, shape, rows * groups, vectors, vector, length % vector != 0, multiprocessors)) {
      return none;
    }
    shape.block = dim3(unsigned(shape.lanes));
    shape.large = row_is_large(work, shape.items, vector, shape.lanes);
  }
  shape.resident = row_resident(work, shape.items, vector, int(shape.block.x));
  return shape;
}

}  // namespace fusegen
