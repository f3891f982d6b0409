// Runs: neighbouring elements of a row that a thread keeps, wherever in memory they begin. They are
// moved word by word. That is more accesses than by the vectors that a segment touches (Ragged),
// but a segment takes no more threads than one that begins with a vector.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "packs.cuh"
#include "types.cuh"

namespace fusegen {

// Up to kVec neighbouring columns.
template <int kVec>
struct Run {
  int64_t first;
  int count;  // that exist

  __device__ __forceinline__ bool any() const { return count > 0; }
  __device__ __forceinline__ bool has(int v) const { return v < count; }
  __device__ __forceinline__ int size() const { return count; }
  // Column v; the first one in place of one that does not exist.
  __device__ __forceinline__ int64_t at(int v) const { return first + (has(v) ? v : 0); }
};

template <int kVec, bool kPacked, bool kRuns>
using RowColumns = std::conditional_t<kRuns, Run<kVec>, SegmentColumns<kVec, kPacked>>;

// The columns of a thread of a row kernel; the arguments are those of segment_columns().
template <int kVec, bool kPacked, bool kRuns>
__device__ __forceinline__ RowColumns<kVec, kPacked, kRuns> row_columns(
    int64_t row, int64_t begin, int64_t end, int64_t offset) {
  if constexpr (kRuns) {
    const int64_t first = begin + offset, left = end - first;
    return {first, left < kVec ? (left < 0 ? 0 : int(left)) : kVec};
  } else {
    return segment_columns<kVec, kPacked>(row, begin, end, offset);
  }
}

// The words of memory that have a run's elements of 16 bits: the first of them may be the second
// half of a word, that of the next row need not be. They are shifted where they are used: where
// they are loaded it would be to wait for the memory.
template <typename T, int N>
struct Crossing {
  unsigned word[N / 2 + 1];
};

// A thread's elements of a row as they come from memory.
template <typename T, int N, bool kRuns>
using RowLoad = std::conditional_t<kRuns && sizeof(T) == 2, Crossing<T, N>, Loaded<T, N>>;

// The bits of a word that are in front of an element of 16 bits.
template <typename T>
__device__ __forceinline__ unsigned bits_before(const T* element) {
  return unsigned(reinterpret_cast<uintptr_t>(element) % 4) * 8;
}

// Asks for a thread's elements of the row that begins at `row`, in a tensor of `size` elements;
// there must be some. `whole`: as load_pack() has it. Those that do not exist are others of the
// tensor, or zero.
template <typename ColumnsOf, typename T>
__device__ __forceinline__ auto ask_row(
    const ColumnsOf& columns, const T* tensor, int64_t row, int64_t, int64_t whole) {
  return load_pack(columns, tensor, row, whole);
}
template <int N, typename T>
__device__ __forceinline__ RowLoad<T, N, true> ask_row(
    const Run<N>& columns, const T* tensor, int64_t row, int64_t size, int64_t) {
  const int64_t at = row + columns.first;
  const T* const from = tensor + at;
  RowLoad<T, N, true> asked;
  if constexpr (sizeof(T) == 2) {
    const unsigned bits = bits_before(from);
    if (at > 0 && at + N + 2 <= size) {
      const auto* words = reinterpret_cast<const unsigned*>(from - bits / 16);
#pragma unroll
      for (int w = 0; w <= N / 2; ++w) asked.word[w] = read(words + w);
    } else {
      // One of the words may lie outside of the tensor.
      const Loaded<T, N> single = load_single(columns, from);
      unsigned before = 0;
#pragma unroll
      for (int w = 0; w <= N / 2; ++w) {
        const unsigned word = w < N / 2 ? single.unit[w] : 0;
        asked.word[w] = __funnelshift_l(before, word, bits);
        before = word;
      }
    }
  } else if (at + N <= size) {
    T element[N];
#pragma unroll
    for (int v = 0; v < N; ++v) element[v] = read(from + v);
    memcpy(&asked, element, sizeof(asked));
  } else {
    asked = load_single(columns, from);
  }
  return asked;
}

// What was asked for, of the same columns, tensor and row.
template <typename ColumnsOf, typename T, int N>
__device__ __forceinline__ Loaded<T, N> arrived(
    const ColumnsOf&, const T*, int64_t, const Loaded<T, N>& asked) {
  return asked;
}
template <typename T, int N>
__device__ __forceinline__ Loaded<T, N> arrived(
    const Run<N>& columns, const T* tensor, int64_t row, const Crossing<T, N>& asked) {
  const unsigned bits = bits_before(tensor + row + columns.first);
  Loaded<T, N> loaded;
#pragma unroll
  for (int w = 0; w < N / 2; ++w) {
    loaded.unit[w] = __funnelshift_r(asked.word[w], asked.word[w + 1], bits);
  }
  return loaded;
}

// Stores a thread's elements of the row that begins at `row`. No other element is written, not even
// with what it was.
template <int N, typename T>
__device__ __forceinline__ void store_pack(
    const Run<N>& columns, T* tensor, int64_t row, int64_t, const Pack<T, N>& pack) {
  T* const to = tensor + row + columns.first;
  if constexpr (sizeof(T) == 2) {
    // Halves of words at both ends, words between them.
    const unsigned bits = bits_before(to);
    const int odd = int(bits / 16);
    unsigned word[N / 2 + 1] = {};
    memcpy(word, &pack, sizeof(pack));
    if (odd && columns.any()) *to = pack.element[0];
    auto* words = reinterpret_cast<unsigned*>(to + odd);
#pragma unroll
    for (int w = 0; w < N / 2; ++w) {
      const int v = 2 * w + odd;
      const unsigned value = __funnelshift_r(word[w], word[w + 1], bits);
      if (columns.count > v + 1) words[w] = value;
      // Not `else`: two stores with a condition each are faster than branches.
      if (columns.count == v + 1) {
        *reinterpret_cast<unsigned short*>(words + w) = static_cast<unsigned short>(value);
      }
    }
  } else {
#pragma unroll
    for (int v = 0; v < N; ++v) {
      if (columns.has(v)) to[v] = pack.element[v];
    }
  }
}

}  // namespace fusegen
