// Tensors with fewer rows than the program: one row is for a block of the program's rows, or all of
// them come again and again.
//
// In Reads such a tensor is a field Spread<E>, and its pointer knows which row is which. So kernels
// take elements by the places that a tensor of full size would have. An address takes two
// divisions, for each vector.
#pragma once

#include <cstdint>
#include <type_traits>

#include "packs.cuh"
#include "parts.cuh"
#include "unaligned.cuh"

namespace fusegen {

// kRepeats: row r is row r % own of the tensor, else r / (rows / own).
template <typename E, bool kRepeats>
struct Spread {
  E element;
};

template <typename E, bool kRepeats>
struct ElementOfPart<Spread<E, kRepeats>> {
  using type = E;
};
template <typename E>
constexpr bool kIsSpread = false;
template <typename E, bool kRepeats>
constexpr bool kIsSpread<Spread<E, kRepeats>> = true;

// Of numbers that are not negative. A division of 64 bits takes many times as long.
__device__ __forceinline__ int64_t quotient(int64_t value, int64_t by) {
  const auto a = static_cast<uint64_t>(value), b = static_cast<uint64_t>(by);
  return (a | b) >> 32 ? value / by : static_cast<unsigned>(a) / static_cast<unsigned>(b);
}

// period: kRepeats: how many rows the tensor has, else for how many one row is. begin: an element
// of a tensor of full size.
template <typename E, bool kRepeats>
struct SpreadPointer {
  const E* at;
  int64_t period, channels, begin;

  __host__ __device__ SpreadPointer operator+(int64_t elements) const {
    return {at, period, channels, begin + elements};
  }
  // The row of memory that a row of the program is.
  __device__ __forceinline__ const E* row(int64_t index) const {
    const int64_t periods = quotient(index, period);
    return at + (kRepeats ? index - periods * period : periods) * channels;
  }
};

// As those of parts.cuh. Nothing is stored in such a tensor.
template <typename E, bool kRepeats>
struct PointerTo<Spread<E, kRepeats>> {
  using Read = SpreadPointer<E, kRepeats>;
};
template <typename E, bool kRepeats>
struct PointedBy<SpreadPointer<E, kRepeats>> {
  using type = E;
};
template <typename E, bool kRepeats>
__device__ __forceinline__ SpreadPointer<E, kRepeats> row_at(
    const SpreadPointer<E, kRepeats>& tensor, int64_t row) {
  return tensor + row;
}

// A pointer of the launcher's arguments, with how many rows it has, that converts to what it
// initialises.
struct SpreadFrom {
  const void* at;
  int64_t own, rows, channels;

  template <typename E, bool kRepeats>
  operator SpreadPointer<E, kRepeats>() const {
    return {static_cast<const E*>(at), kRepeats ? own : own > 0 ? rows / own : 0, channels, 0};
  }
};
template <class Sizes>
SpreadFrom spread_from(const void* at, int64_t own, const Sizes& sizes) {
  return {at, own, sizes.rows, sizes.channels};
}

// N neighbours from element `first` on; has: which of them exist. aligned: whether the vector is,
// if rows are whole vectors.
template <int N, typename E, bool kRepeats, typename Has>
__device__ __forceinline__ Loaded<E, N> load_spread(
    const SpreadPointer<E, kRepeats>& from, int64_t first, bool aligned, const Has& has) {
  int64_t row = quotient(first, from.channels);
  int64_t column = first - row * from.channels;
  const E* own = from.row(row);
  if (aligned && from.channels % N == 0) {
    return load_words<N>(own + column, [](auto* word) { return read(word); });
  }
  Pack<E, N> pack = {};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (has(v)) pack[v] = read(own + column);
    if (++column == from.channels) {
      column = 0;
      own = from.row(++row);
    }
  }
  Loaded<E, N> loaded;
  memcpy(&loaded, &pack, sizeof(loaded));
  return loaded;
}

// As load_pack() of other pointers, at the beginning of a row, and of the row that begins at `row`.
template <int N, typename E, bool kRepeats>
__device__ __forceinline__ Loaded<E, N> load_pack(
    const Columns<N, true>& columns, const SpreadPointer<E, kRepeats>& row) {
  return load_spread<N>(row, row.begin + columns.first, true, [](int) { return true; });
}
template <int N, typename E, bool kRepeats>
__device__ __forceinline__ Loaded<E, N, false> load_pack(
    const Columns<N, false>& columns, const SpreadPointer<E, kRepeats>& row) {
  return load_pack(columns, row.row(quotient(row.begin, row.channels)));
}
template <int N, typename E, bool kRepeats>
__device__ __forceinline__ Loaded<E, N> load_pack(
    const Columns<N, true>& columns, const SpreadPointer<E, kRepeats>& tensor, int64_t row,
    int64_t) {
  return load_pack(columns, tensor + row);
}
template <template <int> typename ColumnsOf, int N, typename E, bool kRepeats>
__device__ __forceinline__ Loaded<E, N> load_pack(
    const ColumnsOf<N>& columns, const SpreadPointer<E, kRepeats>& tensor, int64_t row, int64_t) {
  return load_spread<N>(
      tensor, row + columns.first, false, [&](int v) { return columns.has(v); });
}

template <int kVec, class Here, typename E, bool kRepeats>
__device__ __forceinline__ auto load_pack(
    const VectorOverRows<kVec, Here>& columns, const SpreadPointer<E, kRepeats>& tensor,
    int64_t row, int64_t vector_end) {
  return load_pack(columns.here, tensor, row, vector_end);
}

// As that of unaligned.cuh, for the row of the program that begins at element `begin`: all vectors
// are of one row of the tensor, whose divisions are made once.
template <typename ColumnsOf, typename E, bool kRepeats>
__device__ __forceinline__ auto issue_load(
    const ColumnsOf& columns, const SpreadPointer<E, kRepeats>& tensor, int64_t begin, int64_t,
    int64_t) {
  return load_pack(columns, tensor.row(quotient(begin, tensor.channels)));
}

}  // namespace fusegen
