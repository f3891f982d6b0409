// What a row kernel has to do, and what suits it by that: the bounds of its instances, which of
// them a launch takes, and where another schedule is faster. All of it was measured on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exchange.cuh"
#include "shapes.cuh"

namespace fusegen {

// What a row kernel has to do, by which its launch shape is chosen.
struct RowWork {
  int sums;       // of each column, that it takes besides
  int blocks;     // as row_threads() and row_blocks() have it
  int constants;  // of each column
  int again;      // tensors with all elements that the two-pass schedule reads a second time
  int values;     // that are computed of an element
  int bytes;      // of an element in memory
  int threads;    // of a block with two vectors each, at most: row_most_threads()
  int cluster;    // blocks that can share a segment, at most
};

// Threads of a block at most: with one vector each, with two, and in the instance for large blocks.
constexpr int kRowOne = 256, kRowTwo = 512, kRowLarge = 1024;

// Turns of 512 threads of each multiprocessor from which on what a turn takes counts for more than
// how a kernel begins and ends.
constexpr int kRowSomeTurns = 6;

// How many values threads of a kernel with column sums exchange: those of 512 vectors at once where
// a block has several rows, or what the warps of a cluster send each other.
template <int kVec, int kSent>
constexpr int kRowExchange = std::max(512 * kVec, exchange_size(kSent));

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

// Whether sums of columns in shared memory cost a kernel little, beside what the two-pass schedule
// reads again.
inline bool sums_are_light(const RowWork& work) {
  return work.sums + work.constants <= 3 || work.again > 2;
}

// How many blocks of `threads` a multiprocessor has registers for, by these bounds. They are given
// to warps: there are more blocks that are smaller.
inline int row_resident(const RowWork& work, int items, int vector, int64_t threads, bool large) {
  const int bound = row_threads(items, vector, work.blocks, large);
  return int(bound * row_blocks(items, vector, work.blocks) / threads);
}

// Whether a launch with two vectors a thread takes the instance of a row kernel for large blocks.
// It has 64 registers a thread, for 1024 threads of a multiprocessor, and keeps constants and sums
// of its columns in shared memory. It is for blocks of which the usual instance has registers for
// one at a time. With turns enough it is for those, too, of which a multiprocessor then holds at
// least 1.5 times as many, if the usual instance has registers for two, or in 16 bits if segments
// begin within vectors, as measured from 96 threads on. With column sums a cluster is faster, where
// there are clusters, but for many turns with elements of 16 bits: where a block is not much
// larger, or is nearly as large as it can be and has little to do.
inline bool row_is_large(
    const RowWork& work, int vector, bool packed, int64_t threads, int64_t turns) {
  if (work.sums == 0) {
    const int usual = row_resident(work, 2, vector, threads, false);
    const bool more = 2 * (work.threads / threads) >= 3 * usual;
    const bool ragged = !packed && work.bytes == 2 && threads > 64;
    return usual <= 1 || (turns >= kRowSomeTurns && more && (usual == 2 || ragged));
  }
  const bool has_room = work.threads > kRowTwo && threads <= work.threads;
  if (work.cluster == 1 && threads > kRowTwo) return has_room;
  if (work.bytes > 2 || !has_room || turns < 32) return false;
  return threads <= 320 ? threads > kRowOne : sums_are_light(work) && threads >= 896;
}

// Threads, in whole warps, of each of the blocks that share `vectors` vectors, `items` a thread.
inline int64_t row_block_threads(int64_t vectors, int items, int cluster) {
  return ceil_div(vectors, 32 * items * cluster) * 32;
}

// How many blocks share a segment of `vectors` vectors, two a thread, with column sums; 0 where no
// cluster is enough. With few turns, one if it can be, else blocks that are as small as can be,
// each of which has less to do. With more, as many as give the most threads of a multiprocessor
// something to do, or the more where that is the same, since blocks compute while others wait. One
// block has nobody to wait for. Clusters of more than two leave some multiprocessors without a
// block, those of five and seven many, and those of six where a multiprocessor has room for one
// block only.
inline int row_cluster(const RowWork& work, int vector, int64_t vectors, int64_t turns) {
  const bool few = turns < 8;
  int best = 0;
  double most = 0;
  for (const int cluster : {1, 2, 3, 4, 6, 8}) {
    const int64_t threads = row_block_threads(vectors, 2, cluster);
    const bool fits = threads <= std::min(work.threads, kRowTwo) && cluster <= work.cluster &&
        threads * cluster <= 32 * kClusterWarps;
    if (!fits) continue;
    if (few && cluster == 1) return 1;
    const int resident = row_resident(work, 2, vector, threads, false);
    if (cluster == 6 && resident == 1) continue;
    const double usable = cluster == 1 ? 1.25 : cluster == 2 ? 1 : 0.875;
    const double worth = few ? 1.0 / double(threads) : usable * resident / cluster;
    if (few ? worth > most : worth >= most) {
      best = cluster;
      most = worth;
    }
  }
  return best;
}

// Whether the threads of a row kernel have twice as much of a segment as they must, `share`
// elements: fewer instructions for each of them, and fewer warps to exchange the results of a long
// segment, but beginnings and ends that take longer.
inline bool row_doubles(const Shapes& shapes, int64_t elements, int share, int multiprocessors) {
  if (shapes.row_share != 0) return shapes.row_share == 2;
  return elements >= int64_t(kRowSomeTurns) * 512 * share * multiprocessors;
}

// Whether a kernel with column sums can have `wide` elements a thread, 16 bytes, of a segment of a
// warp. Without vectors they are runs, and words of three tensors to read take longer than what is
// saved by fewer threads, but for the shortest.
inline bool row_can_be_wide(const RowWork& work, bool packed, int64_t length, int wide) {
  if (packed) return length % wide == 0 && length <= 32 * wide;
  return length <= (work.again > 2 ? 4 : 32) * wide;
}

// Whether the two-pass schedule is faster for `segments` of one block each, with column sums: large
// blocks, of which a multiprocessor has a quarter of one to four where they may begin within a
// vector (`ragged`), or half of one to two with many constants; and few turns of those that are too
// large for the usual instance. As measured.
inline bool second_read_pays(
    const RowWork& work, int lanes, int64_t segments, bool ragged, int64_t turns,
    int multiprocessors) {
  if (work.sums == 0) return false;
  if (lanes > kRowTwo) return turns < 4;
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

}  // namespace fusegen
