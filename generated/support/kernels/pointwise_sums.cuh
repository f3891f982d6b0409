// The sums of a pointwise kernel's block, which become partial results.
#pragma once

#include <type_traits>

#include <cuda_runtime.h>

#include "../reduce_columns.cuh"
#include "program.cuh"

namespace fusegen {

// Reduces the sums of a thread's columns over the threads that have the same columns, and calls
// store(slot, values) with each component. For moments, count(v) is the number of values of column
// v in this thread, and total(v) that in the block.
template <int kVec, typename Acc, typename Sums, typename Count, typename Total, typename Store>
__device__ __forceinline__ void store_column_sums(
    Acc* shared, Sums& sums, const Count& count, const Total& total, const Store& store) {
  constexpr int kMoments = Sums::kComponents - Sums::kFields;
  constexpr int kPlain = Sums::kFields - kMoments;
  // One more than there are sums, as an array has some element.
  Moments<Acc> moments[kMoments + 1][kVec];
  Acc plain[kPlain + 1][kVec];
  int m = 0, s = 0;
  each(
      [&](auto, auto& column) {
        if constexpr (std::is_same_v<decltype(column), Acc(&)[kVec]>) {
#pragma unroll
          for (int v = 0; v < kVec; ++v) plain[s][v] = column[v];
          ++s;
        } else {
#pragma unroll
          for (int v = 0; v < kVec; ++v) moments[m][v] = moments_of(column[v], count(v));
          moments_over_y<kVec>(shared, moments[m], count, total);
          ++m;
        }
      },
      sums);
  // Two at a time, as there is shared memory for two.
#pragma unroll
  for (int i = 0; i + 1 < kPlain; i += 2) sum_over_y<kVec>(shared, plain[i], plain[i + 1]);
  if constexpr (kPlain % 2 == 1) sum_over_y<kVec>(shared, plain[kPlain - 1]);
  int slot = 0;
  m = s = 0;
  each(
      [&](auto, auto& column) {
        if constexpr (std::is_same_v<decltype(column), Acc(&)[kVec]>) {
          store(slot++, plain[s++]);
        } else {
          Acc mean[kVec], m2[kVec];
#pragma unroll
          for (int v = 0; v < kVec; ++v) {
            mean[v] = moments[m][v].mean;
            m2[v] = moments[m][v].m2;
          }
          store(slot++, mean);
          store(slot++, m2);
          ++m;
        }
      },
      sums);
}

}  // namespace fusegen
