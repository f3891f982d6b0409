// Which columns of a row a thread has.
//
// Packed: kVec neighbours, which one access to memory moves as an aligned vector. That needs rows,
// and groups of their channels, which begin at multiples of a vector. Where they do not, it depends
// on the kernel:
// - the pointwise kernel takes several rows at a time, which together end with a vector (RowTile);
// - kernels of segments, which are rows or groups of their channels, take the aligned vectors that
//   a segment overlaps with, masked (MaskedVector), or neighbours from the segment's first element
//   on (UnalignedVector, in unaligned.cuh);
// - kernels with tiles of columns take single elements (Columns that are not packed).
#pragma once

#include "types.cuh"

namespace fusegen {

// How many columns a thread has where they are not neighbours.
constexpr int kStridedColumns = 4;

// The columns of one thread: kVec neighbours, or up to kVec columns at a stride, so that
// neighbouring threads access neighbouring elements.
template <int kVec, bool kPacked>
struct Columns {
  int64_t first;
  int stride;
  int count;  // columns that exist; packed, all of them or none

  __device__ __forceinline__ bool any() const { return count > 0; }
  __device__ __forceinline__ int size() const { return count; }
  // Whether the thread has a column v, if it has any.
  __device__ __forceinline__ bool has(int v) const { return kPacked || v < count; }
  // Column v, or the first one where column v does not exist.
  __device__ __forceinline__ int64_t at(int v) const {
    return kPacked ? first + v : first + (v < count ? v * stride : 0);
  }
  // Calls visit(v, row, column) for each column v; rows are counted from the thread's own.
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

// An aligned vector of memory, with a mask of the elements that are the thread's, which follow each
// other.
template <int kVec>
struct MaskedVector {
  int64_t first;  // counted from where the row begins: it may be before that
  int low;        // the first element that exists, if any does
  unsigned mask;

  __device__ __forceinline__ bool any() const { return mask != 0; }
  __device__ __forceinline__ bool all() const { return mask == (1u << kVec) - 1u; }
  __device__ __forceinline__ bool has(int v) const { return mask & 1u << v; }
  __device__ __forceinline__ int size() const { return __popc(mask); }
  // Column v, or one that exists where column v does not.
  __device__ __forceinline__ int64_t at(int v) const { return first + (has(v) ? v : low); }
};

// The vector at `first`, of which the elements from `begin` to `end` exist.
template <int kVec>
__device__ __forceinline__ MaskedVector<kVec> masked_vector(
    int64_t first, int64_t begin, int64_t end) {
  const int low = first < begin ? int(begin - first) : 0;
  const int64_t left = end - first;
  const int high = left < kVec ? (left < 0 ? 0 : int(left)) : kVec;
  return {first, low, low < high ? (1u << high) - (1u << low) : 0u};
}

template <int kVec, bool kPacked>
using SegmentColumns = std::conditional_t<kPacked, Columns<kVec, true>, MaskedVector<kVec>>;

// The columns of one thread of a segment from `begin` to `end`. The thread's vector is `offset`
// elements, a multiple of kVec, after the first one that the segment overlaps with. `row` is where
// a row begins in memory, in elements; for all rows with the same remainder by kVec the columns are
// the same.
template <int kVec, bool kPacked>
__device__ __forceinline__ SegmentColumns<kVec, kPacked> segment_columns(
    int64_t row, int64_t begin, int64_t end, int64_t offset) {
  if constexpr (kPacked) {
    const int64_t first = begin + offset;
    return {first, 1, first < end ? kVec : 0};
  } else {
    const int64_t first = begin - (row + begin) % kVec + offset;
    return masked_vector<kVec>(first, begin, end);
  }
}

// Quotients and remainders of successive values by a divisor, with one division for all of them.
struct Division {
  int64_t divisor;
  int64_t quotient;
  int64_t remainder;

  __device__ __forceinline__ Division(int64_t value, int64_t by)
      : divisor(by), quotient(value / by), remainder(value % by) {}

  // Calls visit(v, quotient, remainder) with those of value + v, for all v below N.
  template <int N, typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    int64_t now_quotient = quotient, now_remainder = remainder;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      visit(v, now_quotient, now_remainder);
      if (++now_remainder == divisor) {
        now_remainder = 0;
        ++now_quotient;
      }
    }
  }
};

// One thread's vector of a tile of rows: so many rows that the next tile begins at a multiple of a
// vector again. The vector may belong to several rows.
template <int kVec>
struct RowTile {
  int64_t first;  // counted from where the tile begins
  int64_t length;
  Division by_row;

  __device__ __forceinline__ bool any() const { return first < length; }
  // Calls visit(v, row, column) for each element v; rows are counted from the tile's first one.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    by_row.each<kVec>(visit);
  }
};

// The columns of a thread of the pointwise kernel, whose tiles have `period` rows of this many
// channels; a single row where it is packed.
template <int kVec, bool kPacked>
__device__ __forceinline__ auto tile_columns(int64_t first, int64_t channels, int period) {
  if constexpr (kPacked) {
    return Columns<kVec, true>{first, 1, first < channels ? kVec : 0};
  } else {
    return RowTile<kVec>{first, period * channels, Division(first, channels)};
  }
}

// The elements that exist of a thread's vector, in the tile that begins at `tile` in a tensor of
// `elements` elements: the last tile may be shorter than the others.
template <int kVec>
__device__ __forceinline__ Columns<kVec, true> part_of(
    const Columns<kVec, true>& columns, int64_t, int64_t) {
  return columns;
}
template <int kVec>
__device__ __forceinline__ MaskedVector<kVec> part_of(
    const RowTile<kVec>& columns, int64_t tile, int64_t elements) {
  return masked_vector<kVec>(columns.first, 0, elements - tile);
}

}  // namespace fusegen
