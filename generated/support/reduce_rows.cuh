// Sums of columns over the rows that a block of the row kernel has in an iteration, in a fixed
// order.
#pragma once

#include "thread_positions.cuh"

namespace fusegen {

// Sums each array over the rows_per_iteration rows of a block, at least three, where each row has
// `threads` threads; those of the first row get the results. `shared` holds blockDim.x * N values
// for each array.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_rows(
    const ThreadPosition& position, int threads, int rows_per_iteration, Acc* shared,
    Acc (&first)[N], More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  Acc* const arrays[kArrays] = {first, more...};
  Acc* own = shared + position.index;
  // The second half of the rows is added to the first. A call writes each value of shared memory
  // once, and passes two barriers at least, so that a barrier lies between the read of a value and
  // its next write.
#pragma unroll 1
  for (int rows = rows_per_iteration, half; rows > 1; rows = half) {
    half = (rows + 1) / 2;
    if (position.active && position.row >= half && position.row < rows) {
#pragma unroll
      for (int i = 0; i < kArrays * N; ++i) own[i * blockDim.x] = arrays[i / N][i % N];
    }
    __syncthreads();
    if (position.active && position.row + half < rows) {
#pragma unroll
      for (int i = 0; i < kArrays * N; ++i) {
        arrays[i / N][i % N] += own[i * blockDim.x + half * threads];
      }
    }
  }
}

}  // namespace fusegen
