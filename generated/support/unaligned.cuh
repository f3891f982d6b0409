// Unaligned vectors: neighbouring elements of a row, wherever in memory they begin.
//
// They are moved word by word. That is more accesses than masked vectors take (MaskedVector), but a
// segment has no more threads than one that begins at a multiple of a vector.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "packs.cuh"
#include "parts.cuh"
#include "types.cuh"

namespace fusegen {

// Up to kVec neighbouring columns.
template <int kVec>
struct UnalignedVector {
  int64_t first;
  int count;  // columns that exist

  __device__ __forceinline__ bool any() const { return count > 0; }
  __device__ __forceinline__ bool has(int v) const { return v < count; }
  __device__ __forceinline__ int size() const { return count; }
  // Column v, or the first one where column v does not exist.
  __device__ __forceinline__ int64_t at(int v) const { return first + (has(v) ? v : 0); }
};

template <int kVec, bool kPacked, bool kUnaligned>
using RowColumns =
    std::conditional_t<kUnaligned, UnalignedVector<kVec>, SegmentColumns<kVec, kPacked>>;

// The columns of a thread of a row kernel; the arguments are those of segment_columns().
template <int kVec, bool kPacked, bool kUnaligned>
__device__ __forceinline__ RowColumns<kVec, kPacked, kUnaligned> row_columns(
    int64_t row, int64_t begin, int64_t end, int64_t offset) {
  if constexpr (kUnaligned) {
    const int64_t first = begin + offset, left = end - first;
    return {first, left < kVec ? (left < 0 ? 0 : int(left)) : kVec};
  } else {
    return segment_columns<kVec, kPacked>(row, begin, end, offset);
  }
}

// The words of memory that contain an unaligned vector of 16-bit elements. The vector may begin
// with the second half of a word, which differs from row to row. The words are shifted where they
// are used: a shift where they are loaded would wait for the memory.
template <typename T, int N>
struct Crossing {
  unsigned word[N / 2 + 1];
};

// A thread's elements of a row as they come from memory.
template <typename T, int N, bool kUnaligned>
using RowLoad = std::conditional_t<kUnaligned && sizeof(T) == 2, Crossing<T, N>, Loaded<T, N>>;

// The bits of a word before an element of 16 bits.
template <typename T>
__device__ __forceinline__ unsigned bits_before(const T* element) {
  return unsigned(reinterpret_cast<uintptr_t>(element) % 4) * 8;
}

// Issues the load of a thread's elements of the row that begins at `row`, in a tensor of `size`
// elements; the thread has some. `vector_end` is that of load_pack(). Elements that do not exist
// get others of the tensor, or zero.
template <typename ColumnsOf, typename T>
__device__ __forceinline__ auto issue_load(
    const ColumnsOf& columns, const T* tensor, int64_t row, int64_t, int64_t vector_end) {
  return load_pack(columns, tensor, row, vector_end);
}
template <typename ColumnsOf, typename T, int kParts>
__device__ __forceinline__ auto issue_load(
    const ColumnsOf& columns, const PartPointer<const T, kParts>& part, int64_t row, int64_t,
    int64_t vector_end) {
  return load_pack(columns, part, row, vector_end);
}
// The vector at `from`, which is element `at` of a tensor of `size` elements.
template <int N, typename T>
__device__ __forceinline__ RowLoad<T, N, true> issue_unaligned(
    const UnalignedVector<N>& columns, const T* from, int64_t at, int64_t size) {
  RowLoad<T, N, true> issued;
  if constexpr (sizeof(T) == 2) {
    const unsigned bits = bits_before(from);
    if (at > 0 && at + N + 2 <= size) {
      const auto* words = reinterpret_cast<const unsigned*>(from - bits / 16);
#pragma unroll
      for (int w = 0; w <= N / 2; ++w) issued.word[w] = read(words + w);
    } else {
      // One of the words may lie outside of the tensor.
      const Loaded<T, N> single = load_single(columns, from);
      unsigned before = 0;
#pragma unroll
      for (int w = 0; w <= N / 2; ++w) {
        const unsigned word = w < N / 2 ? single.unit[w] : 0;
        issued.word[w] = __funnelshift_l(before, word, bits);
        before = word;
      }
    }
  } else if (at + N <= size) {
    T element[N];
#pragma unroll
    for (int v = 0; v < N; ++v) element[v] = read(from + v);
    memcpy(&issued, element, sizeof(issued));
  } else {
    issued = load_single(columns, from);
  }
  return issued;
}
template <int N, typename T>
__device__ __forceinline__ RowLoad<T, N, true> issue_load(
    const UnalignedVector<N>& columns, const T* tensor, int64_t row, int64_t size, int64_t) {
  const int64_t at = row + columns.first;
  return issue_unaligned(columns, tensor + at, at, size);
}
// What a tensor as large as a part has before and behind an element, its parts have too.
template <int N, typename T, int kParts>
__device__ __forceinline__ RowLoad<T, N, true> issue_load(
    const UnalignedVector<N>& columns, const PartPointer<const T, kParts>& part, int64_t row,
    int64_t size, int64_t) {
  const int64_t at = row + columns.first;
  return issue_unaligned(columns, part.row_at(row) + columns.first, at, size);
}

// The elements of a load that was issued for the same columns, tensor and row.
template <typename ColumnsOf, typename Pointer, typename T, int N>
__device__ __forceinline__ Loaded<T, N> complete_load(
    const ColumnsOf&, const Pointer&, int64_t, const Loaded<T, N>& issued) {
  return issued;
}
template <typename Pointer, typename T, int N>
__device__ __forceinline__ Loaded<T, N> complete_load(
    const UnalignedVector<N>& columns, const Pointer& tensor, int64_t row,
    const Crossing<T, N>& issued) {
  const unsigned bits = bits_before(row_at(tensor, row) + columns.first);
  Loaded<T, N> loaded;
#pragma unroll
  for (int w = 0; w < N / 2; ++w) {
    loaded.unit[w] = __funnelshift_r(issued.word[w], issued.word[w + 1], bits);
  }
  return loaded;
}

// Stores a thread's elements of the row that begins at `row`. No other element is written, not even
// with its own value.
template <int N, typename T>
__device__ __forceinline__ void store_pack(
    const UnalignedVector<N>& columns, T* tensor, int64_t row, int64_t, const Pack<T, N>& pack) {
  T* const to = tensor + row + columns.first;
  if constexpr (sizeof(T) == 2) {
    // Half words at both ends, words between them.
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
      // Not `else`: two predicated stores are faster than branches.
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
