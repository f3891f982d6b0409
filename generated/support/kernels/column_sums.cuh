// The sums of a pass of the column kernel over the rows of a block and of its cluster.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../cluster.cuh"
#include "../reduce_columns.cuh"
#include "column_layout.cuh"
#include "program.cuh"

namespace fusegen {

// Sums each of several arrays over the cluster, with one exchange.
template <typename Acc, int kArrays, int kVec, std::size_t... kIndices>
__device__ __forceinline__ void sum_arrays_over_cluster(
    Acc* exchange, Acc (&sums)[kArrays][kVec], std::index_sequence<kIndices...>) {
  sum_over_cluster<kVec>(exchange, sums[kIndices]...);
}

// Reduces the sums of a thread, of `count` rows, over the `rows` rows of the block and over the
// cluster, whose blocks have rows_per_block rows each. Every thread of a column gets the total.
// `shared` is for the block, `exchange` for the cluster.
template <class P, int kPass, int kVec, typename Sums, typename Acc>
__device__ __forceinline__ void reduce_column_sums(
    const P& p, const Sums& sum, Acc count, int rows, int rows_per_block, Acc* shared,
    Acc* exchange, Totals<P, kPass> (&total)[kVec]) {
  constexpr unsigned kMomentFields = moments_of_pass<P, kPass>();
  constexpr int kFields = P::template Sums<kPass, TypeOf>::kFields;
  constexpr int kMoments = fields_in(kMomentFields);
  constexpr int kSums = kFields - kMoments;
  Moments<Acc> moments[kMoments + 1][kVec];
  Acc sums[kSums + 1][kVec];
  each(
      [&](auto i, auto& running) {
        constexpr int kField = decltype(i)::value;
        constexpr int kBefore = fields_in(below(kMomentFields, kField));
        constexpr int kSum = kField - kBefore;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          if constexpr (has_bit(kMomentFields, kField)) {
            moments[kBefore][v] = moments_of(running[v], count);
          } else {
            sums[kSum][v] = running[v];
          }
        }
      },
      sum);
  const auto counted = [count](int) { return count; };
  const auto all_rows = [rows](int) { return Acc(rows); };
#pragma unroll
  for (int i = 0; i < kMoments; ++i) {
    moments_over_y<kVec>(shared, moments[i], counted, all_rows);
    moments_over_cluster<kVec>(exchange, moments[i], rows_per_block, int(p.rows));
  }
#pragma unroll
  for (int i = 0; i + 1 < kSums; i += 2) sum_over_y<kVec>(shared, sums[i], sums[i + 1]);
  if constexpr (kSums % 2 == 1) sum_over_y<kVec>(shared, sums[kSums - 1]);
  if constexpr (kSums > 0) {
    sum_arrays_over_cluster(exchange, sums, std::make_index_sequence<kSums>());
  }

#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    each(
        [&](auto i, auto& value) {
          constexpr int kField = decltype(i)::value;
          constexpr int kBefore = fields_in(below(kMomentFields, kField));
          constexpr int kSum = kField - kBefore;
          if constexpr (has_bit(kMomentFields, kField)) {
            value = moments[kBefore][v];
          } else {
            value = sums[kSum][v];
          }
        },
        total[v]);
  }
}

}  // namespace fusegen
