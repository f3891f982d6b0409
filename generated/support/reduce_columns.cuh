// Sums and moments of columns over the rows of a block, in a fixed order: results are bitwise
// reproducible.
//
// A block has blockDim.x columns or vectors of columns, a power of two up to 32, and blockDim.y
// rows of threads, together a multiple of 32.
#pragma once

#include "moments.cuh"
#include "thread_positions.cuh"

namespace fusegen {

// Sums N values of each array over the threads of a warp that have the same columns. The loop runs
// once per block, so unrolling it would only cost compile time.
template <int N, int kArrays, typename Acc>
__device__ __forceinline__ void sum_over_rows_of_warp(Acc* const (&arrays)[kArrays]) {
#pragma unroll 1
  for (int offset = 16; offset >= int(blockDim.x); offset /= 2) {
#pragma unroll
    for (int i = 0; i < kArrays * N; ++i) {
      arrays[i / N][i % N] += __shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset);
    }
  }
}

// Sums N values of each array over the block's rows; every thread of a column gets the result.
// `shared` holds warp_count() * blockDim.x * N values for each array.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_y(Acc* shared, Acc (&first)[N], More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  Acc* const arrays[kArrays] = {first, more...};
  sum_over_rows_of_warp<N>(arrays);
  const int width = blockDim.x;
  const int lane = thread_index() % 32;
  const int warp = thread_index() / 32;
  const int sums = kArrays * width * N;  // of one warp
  __syncthreads();
  if (lane < width) {
#pragma unroll
    for (int i = 0; i < kArrays * N; ++i) {
      shared[warp * sums + (i / N * width + lane) * N + i % N] = arrays[i / N][i % N];
    }
  }
  __syncthreads();
  // One thread per sum: if every thread summed its own columns, all rows would read the same
  // values.
#pragma unroll 1
  for (int i = thread_index(); i < sums; i += blockDim.x * blockDim.y) {
    Acc total = shared[i];
#pragma unroll 1
    for (int other = 1; other < warp_count(); ++other) total += shared[other * sums + i];
    shared[i] = total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kArrays * N; ++i) {
    arrays[i / N][i % N] = shared[(i / N * width + threadIdx.x) * N + i % N];
  }
}

// Moments over the block's rows, from count(v) values of each thread, total(v) of them in all;
// every thread of a column gets the result. `shared` holds 2 warp_count() * blockDim.x * N values.
template <int N, typename Acc, typename Count, typename Total>
__device__ __forceinline__ void moments_over_y(
    Acc* shared, Moments<Acc> (&moments)[N], const Count& count, const Total& total) {
  Acc inverse[N];
#pragma unroll
  for (int v = 0; v < N; ++v) inverse[v] = Acc(1) / total(v);
  moments_of_parts(
      moments, count, [&](int v) { return inverse[v]; },
      [&](auto&... values) { sum_over_y<N>(shared, values...); });
}

}  // namespace fusegen
