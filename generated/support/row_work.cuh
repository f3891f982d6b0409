// The work of a row kernel, and what its launch configuration follows from: the launch bounds of
// its instances, which instance a launch takes, and where another schedule is faster. All
// thresholds were measured on a GPU.
//
// A segment is a row, or a group of a row's channels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exchange.cuh"
#include "shapes.cuh"

namespace fusegen {

// The work of a row kernel, by which its launch configuration is chosen.
struct RowWork {
  int sums;       // column sums
  int blocks;     // row_resident_of()
  int constants;  // per column
  int again;      // tensors with all elements that the two-pass schedule reads a second time
  int values;     // that are computed of an element
  int bytes;      // of an element in memory
  int threads;    // of a block with two vectors per thread, at most: row_most_threads()
  int cluster;    // blocks that can share a segment, at most
};

// Threads per block at most: with one vector per thread, with two, and in the instance for full
// blocks, which have as many threads as a GPU allows.
constexpr int kRowOne = 256, kRowTwo = 512, kRowFullBlock = 1024;

// How many instances of four elements per thread a multiprocessor has registers for, where the
// launch bounds ask for them: fewer where a thread has much of each of its columns, or reads more
// than one tensor.
constexpr int row_resident_of(int constants, int sums, int reads) {
  return constants + sums <= 7 && reads == 1 ? 4 : 3;
}

// Whether there is an instance for full blocks: constants and sums of a column have to fit shared
// memory, for eight columns of 1024 threads.
constexpr bool row_has_full_blocks(int constants, int sums) {
  return sums == 0 || constants + sums <= 6;
}

// Whether constants of a column do not fit registers beside its sums, for eight columns.
constexpr bool row_has_many_constants(int constants, int sums) {
  return sums > 0 && constants > 3;
}

// Iterations of 512 threads per multiprocessor from which on the time of an iteration counts for
// more than the beginning and the end of a kernel.
constexpr int kRowSomeIterations = 6;

// How many values of shared memory a kernel with column sums exchanges at once: those of 512
// vectors where a block has several rows, or what the warps of a cluster send each other.
template <int kVec, int kSent>
constexpr int kRowExchange = std::max(512 * kVec, exchange_size(kSent));

// Threads of a block with two vectors per thread, at most. Each thread's part of shared memory has
// `bytes` of the `shared` bytes that there are.
constexpr int row_most_threads(bool full_block, int64_t bytes = 0, int64_t shared = 0) {
  const int most = full_block ? kRowFullBlock : kRowTwo;
  return bytes * most <= shared ? most : int(shared / bytes) / 32 * 32;
}

// The launch bounds of a row kernel, which decide how many registers a thread has: threads per
// block, and resident blocks per multiprocessor. With one item these are `blocks` for vectors of
// four elements, and one less for longer vectors. With two items of four elements and little else
// in registers the bound is higher than any block, so that more blocks are resident.
constexpr int row_threads(int items, int vector, int blocks, bool full_block) {
  if (items == 1) return kRowOne;
  return full_block ? kRowFullBlock : vector == 4 && blocks > 3 ? 768 : kRowTwo;
}
constexpr int row_blocks(int items, int vector, int blocks) {
  return items > 1 ? 1 : vector > 4 ? blocks - 1 : blocks;
}

// Whether threads have unaligned vectors, where segments do not begin at multiples of a vector;
// otherwise they have masked ones. Masked vectors are fewer accesses to memory, but up to one
// vector more per segment. Unaligned vectors pay where that one is many of a segment's threads, as
// measured: with two items a segment is longer, and in 16 bits an unaligned vector is more
// accesses, too many for a kernel that does little else.
constexpr bool row_has_unaligned(bool packed, int items, int vector, int bytes, bool sums) {
  return !packed && items == 1 && (bytes > 2 || (sums && vector > 4));
}
template <typename T, int kVec, bool kPacked, int kItems, bool kSums>
constexpr bool kHasUnaligned = row_has_unaligned(kPacked, kItems, kVec, sizeof(T), kSums);

// Warps per block of a row kernel, at most.
template <int kItems, bool kFullBlock>
constexpr int kRowWarps = (kItems == 1 ? kRowOne : kFullBlock ? kRowFullBlock : kRowTwo) / 32;

// Whether column sums in shared memory cost a kernel little, compared with what the two-pass
// schedule reads again.
inline bool sums_are_light(const RowWork& work) {
  return work.sums + work.constants <= 3 || work.again > 2;
}

// For how many blocks of `threads` a multiprocessor has registers, by the launch bounds. Registers
// are allocated to warps, so smaller blocks are more of them.
inline int row_resident(
    const RowWork& work, int items, int vector, int64_t threads, bool full_block) {
  const int bound = row_threads(items, vector, work.blocks, full_block);
  return int(bound * row_blocks(items, vector, work.blocks) / threads);
}

// Whether a launch with two vectors per thread takes the instance for full blocks. It has 64
// registers per thread, for 1024 threads of a multiprocessor, with constants and column sums in
// shared memory.
//
// It is for blocks of which the usual instance has registers for one at a time. Given enough
// iterations it is also for blocks of which a multiprocessor then holds at least 1.5 times as many,
// if the usual instance has registers for two, or if segments are not aligned, in 16 bits, as
// measured from 96 threads on. With column sums a cluster is faster where there are clusters,
// unless there are many iterations with elements of 16 bits: where the block is not much more than
// half of what it could be, or where it is nearly full and does little.
inline bool row_takes_full_block(
    const RowWork& work, int vector, bool packed, int64_t threads, int64_t iterations) {
  if (work.sums == 0) {
    const int usual = row_resident(work, 2, vector, threads, false);
    const bool more = 2 * (work.threads / threads) >= 3 * usual;
    const bool unaligned = !packed && work.bytes == 2 && threads > 64;
    return usual <= 1 || (iterations >= kRowSomeIterations && more && (usual == 2 || unaligned));
  }
  const bool has_room = work.threads > kRowTwo && threads <= work.threads;
  if (work.cluster == 1 && threads > kRowTwo) return has_room;
  if (work.bytes > 2 || !has_room || iterations < 32) return false;
  return threads <= 320 ? threads > kRowOne : sums_are_light(work) && threads >= 896;
}

// Threads, a multiple of 32, of each of the blocks that share `vectors` vectors, `items` per
// thread.
inline int64_t row_block_threads(int64_t vectors, int items, int cluster) {
  return ceil_div(vectors, 32 * items * cluster) * 32;
}

// How many blocks share a segment of `vectors` vectors, two per thread, with column sums; 0 where
// no cluster is enough. With few iterations: one if it can be, else the smallest blocks, each of
// which has the least to do. With more: as many as keep the most threads of a multiprocessor busy;
// of two that keep as many, the larger number, as blocks compute while others wait. A single block
// waits for no other. Clusters of more than two leave some multiprocessors without a block, those
// of five and seven many, and those of six where a multiprocessor has room for one block only.
inline int row_cluster(const RowWork& work, int vector, int64_t vectors, int64_t iterations) {
  const bool few = iterations < 8;
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
// elements: fewer instructions per element, and fewer warps to exchange the results of a long
// segment, but the kernel takes longer to begin and to end.
inline bool row_doubles(const Shapes& shapes, int64_t elements, int share, int multiprocessors) {
  if (shapes.row_share != 0) return shapes.row_share == 2;
  return elements >= int64_t(kRowSomeIterations) * 512 * share * multiprocessors;
}

// Whether a thread of a kernel with column sums can have a full vector of 16 bytes, of a segment
// that a warp has. Where rows are not aligned these vectors are read word by word: for three
// tensors that takes longer than fewer threads save, but for the shortest segments.
inline bool row_can_have_full_vector(
    const RowWork& work, bool packed, int64_t length, int full_vector) {
  if (packed) return length % full_vector == 0 && length <= 32 * full_vector;
  return length <= (work.again > 2 ? 4 : 32) * full_vector;
}

// Whether the two-pass schedule is faster for `segments` of one block each, with column sums: long
// blocks, of which a multiprocessor has a quarter of one to four if they are not aligned, or half
// of one to two with many constants; and few iterations of blocks that are too long for the usual
// instance. As measured.
inline bool second_read_pays(
    const RowWork& work, int lanes, int64_t segments, bool unaligned, int64_t iterations,
    int multiprocessors) {
  if (work.sums == 0) return false;
  if (lanes > kRowTwo) return iterations < 4;
  const int some = unaligned ? 4 : 2;
  const bool is_long = unaligned ? lanes > 352 : lanes > 448 && work.constants > 3;
  return is_long && segments * some > multiprocessors && segments <= some * multiprocessors;
}

// Whether the threads of a long segment that is not aligned may have two vectors. With column sums
// in float32 that takes the last registers.
inline bool unaligned_doubles(const RowWork& work) {
  if (work.sums == 0 || work.bytes == 2) return true;
  const bool in_shared = work.constants > 3;  // where constants take no registers
  return in_shared || work.values + work.sums + work.constants <= 21;
}

}  // namespace fusegen
