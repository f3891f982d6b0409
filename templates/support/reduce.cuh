// Sums and moments over the threads of a block, always in the same order: results are bitwise
// reproducible.
//
// A block is blockDim.x lanes wide (a power of two, at most 32 when blockDim.y > 1) and blockDim.y
// rows high.
#pragma once

#include <cstdint>

#include "launch.cuh"

namespace fusegen {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int warp_count() { return (blockDim.x * blockDim.y + 31) / 32; }

// Mean and sum of squared distances to it, of a number of values that the caller keeps.
template <typename Acc>
struct Moments {
  Acc mean;
  Acc m2;
};

// Adds one value; `inverse_count` is one over the number of values with it (Welford 1962).
template <typename Acc>
__device__ __forceinline__ void add_value(Moments<Acc>& m, Acc value, Acc inverse_count) {
  const Acc delta = value - m.mean;
  m.mean += delta * inverse_count;
  m.m2 += delta * (value - m.mean);
}

// The moments of two sets together (Chan, Golub and LeVeque 1983).
template <typename Acc>
__device__ __forceinline__ Moments<Acc> merge(
    Moments<Acc> a, Acc count_a, Moments<Acc> b, Acc count_b) {
  if (count_b == Acc(0)) return a;
  if (count_a == Acc(0)) return b;
  const Acc share = count_b / (count_a + count_b);
  const Acc delta = b.mean - a.mean;
  return {a.mean + delta * share, a.m2 + b.m2 + delta * delta * count_a * share};
}

// Sums each of N values over the block's rows; every thread of a column gets the result.
// `shared` holds warp_count() * blockDim.x * N values.
template <int N, typename Acc>
__device__ __forceinline__ void sum_over_y(Acc (&value)[N], Acc* shared) {
  const int width = blockDim.x;
#pragma unroll
  for (int v = 0; v < N; ++v) {
    for (int offset = 16; offset >= width; offset /= 2) {
      value[v] += __shfl_xor_sync(kAllLanes, value[v], offset);
    }
  }
  const int lane = thread_index() % 32;
  const int warp = thread_index() / 32;
  __syncthreads();
  if (lane < width) {
#pragma unroll
    for (int v = 0; v < N; ++v) shared[(warp * width + lane) * N + v] = value[v];
  }
  __syncthreads();
#pragma unroll
  for (int v = 0; v < N; ++v) value[v] = shared[threadIdx.x * N + v];
  for (int other = 1; other < warp_count(); ++other) {
#pragma unroll
    for (int v = 0; v < N; ++v) value[v] += shared[(other * width + threadIdx.x) * N + v];
  }
}

// Merges the moments of `count` values of each thread over the block's rows.
// `shared` holds blockDim.x * blockDim.y * (2 N + 1) values. Row 0 gets the result.
template <int N, typename Acc>
__device__ __forceinline__ void merge_over_y(Moments<Acc> (&moments)[N], Acc count, Acc* shared) {
  const int stride = 2 * N + 1;
  Acc* mine = shared + thread_index() * stride;
  __syncthreads();
  mine[2 * N] = count;
#pragma unroll
  for (int v = 0; v < N; ++v) {
    mine[2 * v] = moments[v].mean;
    mine[2 * v + 1] = moments[v].m2;
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int row = 1; row < int(blockDim.y); ++row) {
    const Acc* other = shared + (row * blockDim.x + threadIdx.x) * stride;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      moments[v] = merge(moments[v], count, {other[2 * v], other[2 * v + 1]}, other[2 * N]);
    }
    count += other[2 * N];
  }
}

// Sums over the `lanes` neighbouring threads that share a segment; each of them gets the result.
// lanes is a power of two up to 32, or blockDim.x (then blockDim.y is 1 and `shared` holds 32
// values).
template <typename Acc>
__device__ __forceinline__ Acc sum_over_lanes(Acc value, int lanes, Acc* shared) {
  const int within = lanes < 32 ? lanes : 32;
  for (int offset = within / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  if (lanes <= 32) return value;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < warp_count(); ++warp) value += shared[warp];
  return value;
}

}  // namespace fusegen
