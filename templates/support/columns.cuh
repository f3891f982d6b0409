// Which columns of a row a thread has.
//
// Packed: neighbours, kVec of them, which one access to memory moves. That needs rows, and groups
// of them, which begin at multiples of a vector. Where they do not, it depends on the kernel:
// - pointwise takes so many rows at a time that they end at one (Line);
// - segments take the vectors of memory that they touch (Ragged), or neighbours as if they were
//   packed (Run, in runs.cuh);
// - tiles of columns take single elements (Columns that are not packed).
#pragma once

#include "types.cuh"

namespace fusegen {

// How many columns a thread has where they are not neighbours.
constexpr int kStridedColumns = 4;

// The columns of one thread: kVec neighbours, or up to kVec that are a stride apart, so that
// neighbouring threads access neighbouring elements.
template <int kVec, bool kPacked>
struct Columns {
  int64_t first;
  int stride;
  int count;  // that exist; packed, it is all or none of them

  __device__ __forceinline__ bool any() const { return count > 0; }
  __device__ __forceinline__ int size() const { return count; }
  // Whether the thread has a column v, if it has any.
  __device__ __forceinline__ bool has(int v) const { return kPacked || v < count; }
  // Column v; the first one in place of one that does not exist.
  __device__ __forceinline__ int64_t at(int v) const {
    return kPacked ? first + v : first + (v < count ? v * stride : 0);
  }
  // Calls visit(v, row, column) for each column v; the row is counted from the thread's own.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
#pragma unroll
    for (int v = 0; v < kVec; ++v) visit(v, 0, at(v));
  }
};

// The columns from `begin` on that belong to one of `threads` threads; those from `end` on do not
// exist.
template <int kVec, bool kPacked>
__device__ __forceinline__ Columns<kVec, kPacked> columns_of(
    int64_t begin, int64_t end, int thread, int threads) {
  if constexpr (kPacked) {
    const int64_t first = begin + thread * kVec;
    return {first, 1, first < end ? kVec : 0};
  } else {
    const int64_t first = begin + thread;
    int count = 0;
#pragma unroll
    for (int v = 0; v < kVec; ++v) count += first + v * threads < end;
    return {first, threads, count};
  }
}

// A vector of memory, and which of its elements are the thread's: those of a range, a bit for each.
template <int kVec>
struct Ragged {
  int64_t first;  // counted from where the row begins: it may be before that
  int low;        // the first one that exists, if any does
  unsigned mask;

  __device__ __forceinline__ bool any() const { return mask != 0; }
  __device__ __forceinline__ bool all() const { return mask == (1u << kVec) - 1u; }
  __device__ __forceinline__ bool has(int v) const { return mask & 1u << v; }
  __device__ __forceinline__ int size() const { return __popc(mask); }
  // Column v; one that exists in place of one that does not.
  __device__ __forceinline__ int64_t at(int v) const { return first + (has(v) ? v : low); }
};

// The vector at `first`, of which the elements from `begin` on exist, and before `end`.
template <int kVec>
__device__ __forceinline__ Ragged<kVec> ragged(int64_t first, int64_t begin, int64_t end) {
  const int low = first < begin ? int(begin - first) : 0;
  const int64_t left = end - first;
  const int high = left < kVec ? (left < 0 ? 0 : int(left)) : kVec;
  return {first, low, low < high ? (1u << high) - (1u << low) : 0u};
}

template <int kVec, bool kPacked>
using SegmentColumns = std::conditional_t<kPacked, Columns<kVec, true>, Ragged<kVec>>;

// The columns that one thread of a segment from `begin` to `end` has, at an offset of whole vectors
// behind the first one that the segment touches. `row` is where a row begins in memory, in
// elements; for all rows with the same rest by kVec the columns are the same.
template <int kVec, bool kPacked>
__device__ __forceinline__ SegmentColumns<kVec, kPacked> segment_columns(
    int64_t row, int64_t begin, int64_t end, int64_t offset) {
  if constexpr (kPacked) {
    const int64_t first = begin + offset;
    return {first, 1, first < end ? kVec : 0};
  } else {
    const int64_t first = begin - (row + begin) % kVec + offset;
    return ragged<kVec>(first, begin, end);
  }
}

// Quotient and rest of a value and those behind it by a divisor, with one division for all of them.
struct Division {
  int64_t divisor;
  int64_t quotient;
  int64_t rest;

  __device__ __forceinline__ Division(int64_t value, int64_t by)
      : divisor(by), quotient(value / by), rest(value % by) {}

  // Calls visit(v, quotient, rest) with those of value + v, for all v below N.
  template <int N, typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    int64_t whole = quotient, left = rest;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      visit(v, whole, left);
      if (++left == divisor) {
        left = 0;
        ++whole;
      }
    }
  }
};

// One thread's vector of a line: of so many rows that the next one begins at a multiple of a vector
// again. It may belong to several rows.
template <int kVec>
struct Line {
  int64_t first;  // counted from where the line begins
  int64_t length;
  Division by_row;

  __device__ __forceinline__ bool any() const { return first < length; }
  // Calls visit(v, row, column) for each element v; the row is counted from the line's first one.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    by_row.each<kVec>(visit);
  }
};

// The columns of a thread of a pointwise kernel, which takes `period` rows of channels at a time; a
// single one where it is packed.
template <int kVec, bool kPacked>
__device__ __forceinline__ auto line_columns(int64_t first, int64_t channels, int period) {
  if constexpr (kPacked) {
    return Columns<kVec, true>{first, 1, first < channels ? kVec : 0};
  } else {
    return Line<kVec>{first, period * channels, Division(first, channels)};
  }
}

// What exists of a thread's vector in the line that begins at `line`, of a tensor with this many
// elements: the last line may have less than the others.
template <int kVec>
__device__ __forceinline__ Columns<kVec, true> part_of(
    const Columns<kVec, true>& columns, int64_t, int64_t) {
  return columns;
}
template <int kVec>
__device__ __forceinline__ Ragged<kVec> part_of(
    const Line<kVec>& columns, int64_t line, int64_t elements) {
  return ragged<kVec>(columns.first, 0, elements - line);
}

}  // namespace fusegen
