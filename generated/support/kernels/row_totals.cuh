// Reductions of a segment of the row kernel, whose values are in the registers of several threads.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../math.cuh"
#include "../moments.cuh"
#include "../reduce_lanes.cuh"
#include "../reductions.cuh"
#include "program.cuh"

namespace fusegen {

// Calls f(values...) with the values that an array of pointers points to.
template <int kValues, typename Acc, typename F, int... kPlace>
__device__ __forceinline__ void with_all(
    Acc* const (&values)[kValues], const F& f, std::integer_sequence<int, kPlace...>) {
  if constexpr (sizeof...(kPlace) > 0) f(*values[kPlace]...);
}

// Calls sum_means(means...) with the means of all moments among the totals of a pass, then
// sum_plain(sums...) with all plain sums: sums that are exchanged together need one barrier.
template <int kMoments, int kPlainSums, typename Acc, typename Record, typename F, typename G>
__device__ __forceinline__ void sum_together(
    Record& total, const F& sum_means, const G& sum_plain) {
  Acc* means[kMoments + 1];
  Acc* plain[kPlainSums + 1];
  int m = 0, s = 0;
  each(
      [&](auto, auto& field) {
        if constexpr (std::is_same_v<decltype(field), Acc&>) plain[s++] = &field;
        if constexpr (std::is_same_v<decltype(field), Moments<Acc>&>) means[m++] = &field.mean;
      },
      total);
  with_all(means, sum_means, std::make_integer_sequence<int, kMoments>());
  with_all(plain, sum_plain, std::make_integer_sequence<int, kPlainSums>());
}

// The sum of those of a thread's values whose columns exist.
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ Acc sum_of_columns(const ColumnsOf& columns, const Acc (&value)[kVec]) {
  Acc existing[kVec];
#pragma unroll
  for (int v = 0; v < kVec; ++v) existing[v] = columns.has(v) ? value[v] : Acc(0);
  return sum_of(existing);
}

// Adds a thread's values of a segment to a total of it. Of moments only the sum is added up, in the
// place of the mean.
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    Acc& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
  total += sum_of_columns(columns, value);
}
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    Moments<Acc>& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
  total.mean += sum_of_columns(columns, value);
}
template <template <typename> typename Record, typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    Record<Acc>& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    if (columns.has(v)) add_element(total, value[v], columns.at(v));
  }
}

// A vector's largest first, then how many equal it: fewer instructions than element by element.
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    TiedExtreme<Acc>& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
  TiedExtreme<Acc> own;
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    if (columns.has(v)) own.value = maximum(own.value, value[v]);
  }
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    if (columns.has(v) && value[v] == own.value) own.count += Acc(1);
  }
  total = TiedExtreme<Acc>::combine(total, own);
}

// The counts of a segment that its moments need. The moments of a long segment are merged from
// those of its warps; counts[w], in shared memory, is the number of values of warp w.
template <typename Acc>
struct RowCounts {
  Acc inverse_length;
  Acc inverse_part;  // one over the number of values of the thread's lanes
  Acc* counts;
};

template <typename Acc, typename ColumnsOf, int kItems>
__device__ __forceinline__ RowCounts<Acc> row_counts(
    int64_t length, int lanes, const ColumnsOf (&columns)[kItems], Acc* counts) {
  const Acc inverse_length = Acc(1) / Acc(length);
  Acc inverse_part = inverse_length;
  if (lanes > 32) {
    Acc part = Acc(0);
#pragma unroll
    for (int i = 0; i < kItems; ++i) part += Acc(columns[i].size());
    sum_in_warp(32, part);
    inverse_part = part > Acc(0) ? Acc(1) / part : Acc(0);
    if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = part;
  }
  return {inverse_length, inverse_part, counts};
}

// The moments of a segment's values, given their sum over the thread's lanes in moments.mean. The
// squares are those of the distances of the values in registers to the mean.
template <int kWarps, bool kKeepsLane, typename Acc, typename ColumnsOf, int kItems, int kVec>
__device__ __forceinline__ void moments_in_registers(
    Moments<Acc>& moments, const Acc (&value)[kItems][kVec], const ColumnsOf (&columns)[kItems],
    bool valid, int lanes, int lane, Acc* shared, const RowCounts<Acc>& counts) {
  moments = {moments.mean * counts.inverse_part, Acc(0)};
  Acc rest = Acc(0);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const bool active = valid && columns[i].any();
    Acc distances[kVec];
    Acc squares[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      distances[v] = columns[i].has(v) ? value[i][v] - moments.mean : Acc(0);
      squares[v] = square(distances[v]);
    }
    if (active) rest += sum_of(distances);
    if (active) moments.m2 += sum_of(squares);
  }
  sum_in_lanes<kKeepsLane>(lanes, lane, moments.m2, rest);
  correct(moments, rest, counts.inverse_part);
  if (lanes > 32) {
    moments_over_warps<kWarps>(shared, counts.counts, counts.inverse_length, moments);
  }
}

}  // namespace fusegen
