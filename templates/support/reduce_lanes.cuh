// Reductions of a segment's values over the threads that share it, in a fixed order: results are
// bitwise reproducible, and every thread gets the same bits.
//
// A segment has some lanes of a warp, or a block of one row of full warps.
#pragma once

#include <cstdint>
#include <type_traits>

#include "moments.cuh"
#include "thread_positions.cuh"

namespace fusegen {

// The sum of a thread's own values, as a tree: equal values give their exact multiple.
template <int N, typename Acc>
__device__ __forceinline__ Acc sum_of(const Acc (&value)[N]) {
  Acc sum[N];
#pragma unroll
  for (int v = 0; v < N; ++v) sum[v] = value[v];
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
    for (int v = 0; v < half; ++v) sum[v] += sum[v + half];
  }
  return sum[0];
}

// An operation that reduces values of several threads to one; reductions.cuh has others.
struct Add {
  template <typename Acc>
  static __device__ __forceinline__ Acc identity() {
    return Acc(0);
  }
  template <typename Acc>
  static __device__ __forceinline__ Acc combine(Acc x, Acc y) {
    return x + y;
  }
};

// The same function of a number, or of each number of a record: a shuffle moves one.
template <typename T, typename F>
__device__ __forceinline__ T map_values(const T& value, const F& f) {
  if constexpr (std::is_arithmetic_v<T>) {
    return f(value);
  } else {
    return value.map(f);
  }
}

// Reduces each value over `lanes` neighbouring threads, a power of two, or over the warp where
// lanes are more than that. Each of the threads gets the results. A value is a
// number, or a record of reductions.cuh.
template <typename Op, typename Acc, typename... More>
__device__ __forceinline__ void reduce_in_warp(int lanes, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (offset >= lanes) continue;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const Acc other = map_values(
          *values[i], [&](auto own) { return __shfl_xor_sync(kAllLanes, own, offset); });
      *values[i] = Op::combine(*values[i], other);
    }
  }
}
template <typename Acc, typename... More>
__device__ __forceinline__ void sum_in_warp(int lanes, Acc& first, More&... more) {
  reduce_in_warp<Add>(lanes, first, more...);
}

// Reduces each value over the warps of the block, where all threads of a warp have the same values;
// every thread gets the results. The block has one row; `shared` holds 32 of each value.
template <typename Op, int kMostWarps, typename Acc, typename... More>
__device__ __forceinline__ void reduce_over_warps(Acc* shared, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) shared[i * 32 + threadIdx.x / 32] = *values[i];
  }
  __syncthreads();
  const int warp = threadIdx.x % kMostWarps;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    *values[i] = warp < warp_count() ? shared[i * 32 + warp] : Op::template identity<Acc>();
  }
  reduce_in_warp<Op>(kMostWarps, first, more...);
}

// Merges the moments of the block's warps, where counts[w] is the number of values of warp w; every
// thread gets the result. `shared` holds 64 values and does not overlap the counts.
template <int kMostWarps, typename Acc>
__device__ __forceinline__ void moments_over_warps(
    Acc* shared, const Acc* counts, Acc inverse_count, Moments<Acc>& moments) {
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = moments.mean;
    shared[32 + threadIdx.x / 32] = moments.m2;
  }
  __syncthreads();
  const int warp = threadIdx.x % kMostWarps;
  const bool exists = warp < warp_count();
  const Acc count = exists ? counts[warp] : Acc(0);
  Moments<Acc> part[1] = {};
  if (exists) part[0] = {shared[warp], shared[32 + warp]};
  moments_of_parts(
      part, [&](int) { return count; }, [&](int) { return inverse_count; },
      [](auto&... values) { sum_in_warp(kMostWarps, values[0]...); });
  moments = part[0];
}

// Reduces each value over the `lanes` threads of a segment, or over their warp where lanes are more
// than that. Each of the threads gets the results. lanes is a power of two up to 32, or less than
// 16, with segments next to each other from a warp's first thread on; or it is blockDim.x, a
// multiple of 32. `lane` is the thread's number in the segment. Without kKeepsLane it is computed
// again here, which takes longer, but no register until then.
template <typename Op, bool kKeepsLane = true, typename Acc, typename... More>
__device__ __forceinline__ void reduce_in_lanes(int lanes, int lane, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
  if (lanes < 32 && (lanes & (lanes - 1)) != 0) {
    // To the first lane, and from there to all. The division of 16 bits is the cheap one.
    // To the first lane, and from there to all. The division of 16 bits is the cheaper one.
    if (!kKeepsLane) lane = uint16_t(threadIdx.x % 32) % uint16_t(lanes);
    const int left = lanes - lane;
    // One step more is harmless, and where registers are short it is cheaper than a branch.
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
      if (kKeepsLane && offset == 8 && lanes < 8) continue;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const Acc other = map_values(
            *values[i], [&](auto own) { return __shfl_down_sync(kAllLanes, own, offset); });
        if (offset < left) *values[i] = Op::combine(*values[i], other);
      }
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      *values[i] = map_values(
          *values[i], [&](auto own) { return __shfl_sync(kAllLanes, own, threadIdx.x - lane); });
    }
    return;
  }
  reduce_in_warp<Op>(lanes, first, more...);
}
template <bool kKeepsLane = true, typename Acc, typename... More>
__device__ __forceinline__ void sum_in_lanes(int lanes, int lane, Acc& first, More&... more) {
  reduce_in_lanes<Add, kKeepsLane>(lanes, lane, first, more...);
}

// Reduces each value over all lanes of a segment, also of several warps; `shared` as in
// reduce_over_warps().
template <typename Op, int kMostWarps, bool kKeepsLane = true, typename Acc, typename... More>
__device__ __forceinline__ void reduce_over_lanes(
    int lanes, int lane, Acc* shared, Acc& first, More&... more) {
  reduce_in_lanes<Op, kKeepsLane>(lanes, lane, first, more...);
  if (lanes > 32) reduce_over_warps<Op, kMostWarps>(shared, first, more...);
}
template <int kMostWarps, bool kKeepsLane = true, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_lanes(
    int lanes, int lane, Acc* shared, Acc& first, More&... more) {
  reduce_over_lanes<Add, kMostWarps, kKeepsLane>(lanes, lane, shared, first, more...);
}

// Reduces each value over a block of one row; every thread gets the results. `shared` holds 32 of
// each value.
template <typename Op, typename Acc, typename... More>
__device__ __forceinline__ void reduce_over_block(Acc* shared, Acc& first, More&... more) {
  reduce_in_warp<Op>(32, first, more...);
  reduce_over_warps<Op, 32>(shared, first, more...);
}
template <typename Acc, typename... More>
__device__ __forceinline__ void sum_over_block(Acc* shared, Acc& first, More&... more) {
  reduce_over_block<Add>(shared, first, more...);
}

}  // namespace fusegen
