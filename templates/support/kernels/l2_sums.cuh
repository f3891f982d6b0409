// The slices of the L2-resident kernel, and the sums of a slice, which become partial results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_runtime.h>

#include "../l2_shapes.cuh"
#include "../l2_steps.cuh"
#include "column_layout.cuh"
#include "program.cuh"

namespace fusegen {

// Threads per row of a block, and rows per iteration.
template <class P, int kVec>
constexpr int kL2ThreadsPerRow = kL2LineBytes / int(kVec * sizeof(typename P::T));
template <class P, int kVec>
constexpr int kL2RowsPerIteration = kL2Threads / kL2ThreadsPerRow<P, kVec>;

// A thread's columns of a tile, and the rows of a slice.
template <int kVec>
struct L2Slice {
  Columns<kVec, true> columns;
  int64_t begin;    // the first column of the tile
  int index;        // of the slice in its tile
  int first, last;  // rows

  __device__ __forceinline__ bool has(int row) const { return columns.any() && row < last; }
};

// Stores sums of fields that follow each other.
template <int kBegin, typename Acc, int kFields, int kVec, std::size_t... kIndices>
__device__ __forceinline__ Acc* leave_neighbours(
    Acc* shared, const L2Partials<Acc>& place, Acc (&sums)[kFields][kVec],
    std::index_sequence<kIndices...>) {
  return leave_sums(shared, place, sums[kBegin + kIndices]...);
}

// Stores the sums of a pass from field kField on as partial results of the slice: moments one at a
// time, others together where they follow each other. `shared`: the free part of shared memory.
template <class P, int kPass, int kField, typename Acc, int kFields, int kVec>
__device__ __forceinline__ void leave_from(
    Acc* shared, const L2Partials<Acc>& place, Acc (&sums)[kFields][kVec],
    ShiftedSums<Acc> (&moments)[kFields][kVec], Acc count, Acc total) {
  constexpr unsigned kMomentFields = moments_of_pass<P, kPass>();
  if constexpr (kField < P::template Sums<kPass, TypeOf>::kFields) {
    constexpr int kComponent = kField + fields_in(below(kMomentFields, kField));
    if constexpr (has_bit(kMomentFields, kField)) {
      shared = leave_moments(shared, place.from(kComponent), moments[kField], count, total);
      leave_from<P, kPass, kField + 1>(shared, place, sums, moments, count, total);
    } else {
      constexpr int kNext = set_bit(kMomentFields & ~below(~0u, kField), 0);
      constexpr int kEnd = kNext < 0 ? P::template Sums<kPass, TypeOf>::kFields : kNext;
      shared = leave_neighbours<kField>(
          shared, place.from(kComponent), sums, std::make_index_sequence<kEnd - kField>());
      leave_from<P, kPass, kEnd>(shared, place, sums, moments, count, total);
    }
  }
}

// Stores all sums of a pass as partial results of the slice.
template <int kPass, class P, int kVec, typename Sums>
__device__ __forceinline__ void leave_l2_sums(
    const P& p, const L2Slice<kVec>& slice, typename P::Acc* shared, Sums& sums) {
  constexpr int kRowsPerIteration = kL2RowsPerIteration<P, kVec>;
  using Acc = typename P::Acc;
  const int own = slice.last - slice.first - threadIdx.y;  // rows from the thread's first on
  const Acc count = own > 0 ? Acc((own + kRowsPerIteration - 1) / kRowsPerIteration) : Acc(0);
  const L2Partials<Acc> place{
      p.partials + int64_t(slice.index) * Sums::kComponents * p.channels + slice.begin, p.channels,
      p.channels - slice.begin};
  Acc plain[Sums::kFields][kVec];
  ShiftedSums<Acc> moments[Sums::kFields][kVec];
  each(
      [&](auto i, auto& sum) {
        constexpr int kField = decltype(i)::value;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          if constexpr (has_bit(moments_of_pass<P, kPass>(), kField)) {
            moments[kField][v] = sum[v];
          } else {
            plain[kField][v] = sum[v];
          }
        }
      },
      sums);
  leave_from<P, kPass, 0>(shared, place, plain, moments, count, Acc(slice.last - slice.first));
}

}  // namespace fusegen
