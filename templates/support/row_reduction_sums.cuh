// Sums and moments of a segment that is read in iterations, by one block or by those of a cluster.
#pragma once

#include "cluster.cuh"
#include "reduce_lanes.cuh"

namespace fusegen {

// Values that sum_over_segment() has at a time, at most.
constexpr int kSegmentSums = 2;

// How many values of shared memory that takes: of the block's warps, then its own.
constexpr int kSegmentExchange = (32 + 1) * kSegmentSums;

// Reduces values over the threads that share a segment; every one of them gets the results, to the
// same bits. They are `lanes` neighbours of a warp, a power of two, or all of a block, and of its
// cluster. `shared` holds kSegmentExchange numbers; a value is one or, as a record of
// reductions.cuh, several of them.
template <typename Acc>
struct SegmentReducer {
  Acc* shared;
  int lanes;

  template <typename Op, typename T, typename... More>
  __device__ __forceinline__ void reduce(T& first, More&... more) const {
    constexpr int kSums = 1 + sizeof...(More);
    static_assert(kSums * sizeof(T) <= kSegmentSums * sizeof(Acc));
    if (lanes <= 32) {
      reduce_in_warp<Op>(lanes, first, more...);
      return;
    }
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
};

// The moments over a segment of `count` values of each thread, `total` of them altogether. The
// reducer is as above.
template <typename Reducer, typename Acc>
__device__ __forceinline__ void moments_over_segment(
    const Reducer& reducer, Moments<Acc>& moments, Acc count, Acc total) {
  Moments<Acc> part[1] = {moments};
  const Acc inverse = Acc(1) / total;
  moments_of_parts(
      part, [&](int) { return count; }, [&](int) { return inverse; },
      [&](auto&... values) { reducer.template reduce<Add>(values[0]...); });
  moments = part[0];
}

}  // namespace fusegen
