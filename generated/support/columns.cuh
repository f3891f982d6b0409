// Which columns of a row a thread has, and how it loads and stores them.
//
// Packed: neighbours, kVec of them, which one access to memory moves. That needs rows, and groups
// of them, which begin at multiples of a vector. Where they do not, it depends on the kernel:
// - a stream takes so many rows at a time that they end at one (Line);
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

// The columns of a thread of a stream, which takes `period` rows of this many channels at a time; a
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

// Elements as words that each come from or go to memory by `load` or `store`.
template <int N, typename T, typename Load>
__device__ __forceinline__ Loaded<T, N> load_words(const T* from, const Load& load) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  Word<T, N> word[kWords];
  const auto* words = reinterpret_cast<const Word<T, N>*>(from);
#pragma unroll
  for (int w = 0; w < kWords; ++w) word[w] = load(words + w);
  Loaded<T, N> loaded;
  memcpy(&loaded, word, sizeof(loaded));
  return loaded;
}
template <int N, typename T, typename Store>
__device__ __forceinline__ void store_words(T* to, const Pack<T, N>& pack, const Store& store) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  Word<T, N> word[kWords];
  memcpy(word, &pack, sizeof(pack));
  auto* words = reinterpret_cast<Word<T, N>*>(to);
#pragma unroll
  for (int w = 0; w < kWords; ++w) store(words + w, word[w]);
}

// The thread's elements of a row; there must be some. Those that do not exist are zero.
template <int N, bool kPacked, typename T>
__device__ __forceinline__ Loaded<T, N, kPacked> load_pack(
    const Columns<N, kPacked>& columns, const T* row) {
  if constexpr (kPacked) {
    return load_words<N>(row + columns.first, [](const auto* word) { return *word; });
  } else {
    Loaded<T, N, kPacked> loaded;
#pragma unroll
    for (int v = 0; v < N; ++v) loaded.element[v] = columns.has(v) ? row[columns.at(v)] : T{};
    return loaded;
  }
}

// What exists of the vector at `from`, which need not begin at a multiple of one.
template <template <int> typename ColumnsOf, int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_single(const ColumnsOf<N>& columns, const T* from) {
  Pack<T, N> pack = {};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) pack[v] = from[v];
  }
  Loaded<T, N> loaded;
  memcpy(&loaded, &pack, sizeof(loaded));
  return loaded;
}
template <template <int> typename ColumnsOf, int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_pack(const ColumnsOf<N>& columns, const T* row) {
  return load_single(columns, row + columns.first);
}

// The same where there may be none: zero then.
template <typename ColumnsOf, typename T>
__device__ __forceinline__ auto load_constants(const ColumnsOf& columns, const T* row) {
  using Constants = decltype(load_pack(columns, row));
  return columns.any() ? load_pack(columns, row) : Constants{};
}

template <int N, bool kPacked, typename T>
__device__ __forceinline__ void store_pack(
    const Columns<N, kPacked>& columns, T* row, const Pack<T, N>& pack) {
  if constexpr (kPacked) {
    store_words(row + columns.first, pack, [](auto* at, const auto& word) { __stwb(at, word); });
  } else {
#pragma unroll
    for (int v = 0; v < N; ++v) {
      if (columns.has(v)) row[columns.at(v)] = pack[v];
    }
  }
}

// The same for the row that begins at `row` in a tensor, of which vectors may move the first
// `whole` elements: none where it does not begin at a multiple of 16 bytes. What the others of a
// vector are is not said.
template <int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_pack(
    const Columns<N, true>& columns, const T* tensor, int64_t row, int64_t) {
  return load_pack(columns, tensor + row);
}
template <int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_pack(
    const Ragged<N>& columns, const T* tensor, int64_t row, int64_t whole) {
  const T* const from = tensor + row + columns.first;
  if (row + columns.first + N <= whole) return load_pack(Columns<N, true>{0, 1, N}, from);
  return load_single(columns, from);
}

template <int N, typename T>
__device__ __forceinline__ void store_pack(
    const Columns<N, true>& columns, T* tensor, int64_t row, int64_t, const Pack<T, N>& pack) {
  store_pack(columns, tensor + row, pack);
}
template <int N, typename T>
__device__ __forceinline__ void store_pack(
    const Ragged<N>& columns, T* tensor, int64_t row, int64_t whole, const Pack<T, N>& pack) {
  T* const to = tensor + row + columns.first;
  if (columns.all() && row + columns.first + N <= whole) {
    store_pack(Columns<N, true>{0, 1, N}, to, pack);
    return;
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) to[v] = pack[v];
  }
}

// Values as they are loaded.
template <int N, typename Acc>
__device__ __forceinline__ Loaded<Acc, N> loaded(const Acc (&value)[N]) {
  Loaded<Acc, N> found;
  memcpy(&found, value, sizeof(found));
  return found;
}

// The values of a vector that was loaded; where `present` is false, -0: to add that is nothing, for
// the compiler too.
template <int N, bool kPacked, typename Acc, typename T>
__device__ __forceinline__ void widen_values(
    const Loaded<T, N, kPacked>& loaded, bool present, Acc (&value)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) value[v] = present ? Acc(widen(loaded[v])) : Acc(-0.0);
}

// The same of a vector at the thread's columns.
template <int N, bool kPacked, typename Acc, typename T>
__device__ __forceinline__ void load_values(
    const Columns<N, kPacked>& columns, const T* row, bool present, Acc (&value)[N]) {
  Loaded<T, N, kPacked> loaded;
  if (present) loaded = load_pack(columns, row);
  widen_values(loaded, present, value);
}
template <template <int> typename ColumnsOf, int N, typename Acc, typename T>
__device__ __forceinline__ void load_values(
    const ColumnsOf<N>& columns, const T* row, bool present, Acc (&value)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) {
    value[v] = present && columns.has(v) ? Acc(widen(row[columns.at(v)])) : Acc(-0.0);
  }
}
template <int N, typename Acc, typename T>
__device__ __forceinline__ void load_values(
    const Line<N>& columns, const T* row, bool present, Acc (&value)[N]) {
  columns.each([&](int v, int64_t, int64_t column) {
    value[v] = present ? Acc(widen(row[column])) : Acc(-0.0);
  });
}

template <int N, bool kPacked, typename Acc, typename T>
__device__ __forceinline__ void store_values(
    const Columns<N, kPacked>& columns, T* row, const Acc (&value)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int v = 0; v < N; ++v) pack[v] = narrow<T>(value[v]);
  store_pack(columns, row, pack);
}
template <template <int> typename ColumnsOf, int N, typename Acc, typename T>
__device__ __forceinline__ void store_values(
    const ColumnsOf<N>& columns, T* row, const Acc (&value)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) row[columns.at(v)] = narrow<T>(value[v]);
  }
}

// One of the values that exist; there must be some.
template <int N, typename Acc>
__device__ __forceinline__ Acc one_of(const Columns<N, true>&, const Acc (&value)[N]) {
  return value[0];
}
template <int N, typename Acc>
__device__ __forceinline__ Acc one_of(const Ragged<N>& columns, const Acc (&value)[N]) {
  Acc one{};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) one = value[v];
  }
  return one;
}

// Stores a thread's partial sums of its columns as those of `block`: an array of the channels for
// each of `slots` sums. A line has them for each of its rows.
template <int N, typename Acc>
__device__ __forceinline__ void store_partials(
    const Columns<N, true>& columns, Acc* partials, int64_t block, int slots, int slot,
    int64_t channels, int, const Acc (&value)[N]) {
  store_values(columns, partials + (block * slots + slot) * channels, value);
}
template <int N, typename Acc>
__device__ __forceinline__ void store_partials(
    const Line<N>& columns, Acc* partials, int64_t block, int slots, int slot, int64_t channels,
    int period, const Acc (&value)[N]) {
  columns.each([&](int v, int64_t row, int64_t column) {
    partials[((block * period + row) * slots + slot) * channels + column] = value[v];
  });
}

}  // namespace fusegen
