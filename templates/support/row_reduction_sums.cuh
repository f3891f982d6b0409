// Sums and moments of a segment that is read in iterations, by one block or by those of a cluster.
#pragma once

#include "cluster.cuh"
#include "reduce_lanes.cuh"

namespace fusegen {

// Values that sum_over_segment() has at a time, at most.
constexpr int kSegmentSums = 2;

// How many values of shared memory that takes: of the block's warps, then its own.
constexpr int kSegmentExchange = (32 + 1) * kSegmentSums;

// Reduces each value over the threads that share a segment; every one of them gets the results, to
// the same bits. `shared` holds kSegmentExchange numbers; a value is one or, as a record of
// reductions.cuh, several of them.
template <typename Op, typename Acc, typename T, typename... More>
__device__ __forceinline__ void reduce_over_segment(Acc* shared, T& first, More&... more) {
  constexpr int kSums = 1 + sizeof...(More);
  static_assert(kSums * sizeof(T) <= kSegmentSums * sizeof(Acc));
  reduce_over_block<Op>(next_array<T>(shared, 0), first, more...);
  if (!in_cluster()) return;
  T* const sums[kSums] = {&first, &more...};
  T* const mine = next_array<T>(shared, 32 * kSegmentSums);
  cluster_wait();  // nobody reads the sums before
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    if (threadIdx.x == 0) mine[i] = *sums[i];
  }
  cluster_arrive();
  cluster_wait();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    *sums[i] = Op::template identity<T>();
    for (int rank = 0; rank < int(gridDim.z); ++rank) {
      *sums[i] = Op::combine(*sums[i], *of_peer(mine + i, rank));
    }
  }
  cluster_arrive();
}
template <typename Acc, typename... More>
__device__ __forceinline__ void sum_over_segment(Acc* shared, Acc& first, More&... more) {
  reduce_over_segment<Add>(shared, first, more...);
}

// The moments over a segment of `count` values of each thread, `total` of them altogether; the rest
// as in sum_over_segment().
template <typename Acc>
__device__ __forceinline__ void moments_over_segment(
    Acc* shared, Moments<Acc>& moments, Acc count, Acc total) {
  Moments<Acc> part[1] = {moments};
  const Acc inverse = Acc(1) / total;
  moments_of_parts(
      part, [&](int) { return count; }, [&](int) { return inverse; },
      [&](auto&... values) { sum_over_segment(shared, values[0]...); });
  moments = part[0];
}

}  // namespace fusegen
