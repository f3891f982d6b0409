// How a thread loads and stores its columns of a row, and values of them.
#pragma once

#include "channel_numbers.cuh"
#include "columns.cuh"

namespace fusegen {

// One access to memory. What a kernel only reads may come through the read-only cache, which is not
// coherent; what the launch writes, in this block or another, may not.
template <typename T>
__device__ __forceinline__ T read(const T* from) {
  return __ldg(from);
}
template <typename T>
__device__ __forceinline__ T read(T* from) {
  return *from;
}

// Element `at` of a tensor of one value per channel.
template <typename T>
__device__ __forceinline__ auto read_at(T* tensor, int64_t at) {
  return read(tensor + at);
}

// The type of what is loaded from a pointer, to const or not.
template <typename T, int N, bool kPacked = true>
using LoadedFrom = Loaded<std::remove_const_t<T>, N, kPacked>;

// Loads or stores elements as words, each by one call of `load` or `store`.
template <int N, typename T, typename Load>
__device__ __forceinline__ LoadedFrom<T, N> load_words(T* from, const Load& load) {
  using E = std::remove_const_t<T>;
  constexpr int kWords = sizeof(Pack<E, N>) / sizeof(Word<E, N>);
  using Words = std::conditional_t<std::is_const_v<T>, const Word<E, N>, Word<E, N>>;
  Word<E, N> word[kWords];
  auto* words = reinterpret_cast<Words*>(from);
#pragma unroll
  for (int w = 0; w < kWords; ++w) word[w] = load(words + w);
  Loaded<E, N> loaded;
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

// The thread's elements of a row; the thread has some. Elements that do not exist are zero.
template <int N, bool kPacked, typename T>
__device__ __forceinline__ LoadedFrom<T, N, kPacked> load_pack(
    const Columns<N, kPacked>& columns, T* row) {
  if constexpr (kPacked) {
    return load_words<N>(row + columns.first, [](auto* word) { return read(word); });
  } else {
    LoadedFrom<T, N, kPacked> loaded = {};
#pragma unroll
    for (int v = 0; v < N; ++v) {
      if (columns.has(v)) loaded.element[v] = read(row + columns.at(v));
    }
    return loaded;
  }
}

// The elements that exist of the vector at `from`, which need not be aligned, one by one.
template <template <int> typename ColumnsOf, int N, typename T>
__device__ __forceinline__ LoadedFrom<T, N> load_single(const ColumnsOf<N>& columns, T* from) {
  Pack<std::remove_const_t<T>, N> pack = {};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) pack[v] = read(from + v);
  }
  LoadedFrom<T, N> loaded;
  memcpy(&loaded, &pack, sizeof(loaded));
  return loaded;
}
template <template <int> typename ColumnsOf, int N, typename T>
__device__ __forceinline__ LoadedFrom<T, N> load_pack(const ColumnsOf<N>& columns, T* row) {
  return load_single(columns, row + columns.first);
}

// The thread's values of one per channel, or zero where the thread has none.
template <typename ColumnsOf, typename T>
__device__ __forceinline__ auto load_constants(const ColumnsOf& columns, T* row) {
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

// The same for the row that begins at `row` in a tensor. Vectors may move the elements before
// `vector_end`, which is the end of the tensor, or 0 where the tensor does not begin at a multiple
// of 16 bytes. Elements of a vector that are masked may have any value.
template <int N, typename T>
__device__ __forceinline__ LoadedFrom<T, N> load_pack(
    const Columns<N, true>& columns, T* tensor, int64_t row, int64_t) {
  return load_pack(columns, tensor + row);
}
template <int N, typename T>
__device__ __forceinline__ LoadedFrom<T, N> load_pack(
    const MaskedVector<N>& columns, T* tensor, int64_t row, int64_t vector_end) {
  T* const from = tensor + row + columns.first;
  if (row + columns.first + N <= vector_end) return load_pack(Columns<N, true>{0, 1, N}, from);
  return load_single(columns, from);
}

template <int N, typename T>
__device__ __forceinline__ void store_pack(
    const Columns<N, true>& columns, T* tensor, int64_t row, int64_t, const Pack<T, N>& pack) {
  store_pack(columns, tensor + row, pack);
}
template <int N, typename T>
__device__ __forceinline__ void store_pack(
    const MaskedVector<N>& columns, T* tensor, int64_t row, int64_t vector_end,
    const Pack<T, N>& pack) {
  T* const to = tensor + row + columns.first;
  if (columns.all() && row + columns.first + N <= vector_end) {
    store_pack(Columns<N, true>{0, 1, N}, to, pack);
    return;
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) to[v] = pack[v];
  }
}

// Values in the form that a load gives them.
template <int N, typename Acc>
__device__ __forceinline__ Loaded<Acc, N> loaded(const Acc (&value)[N]) {
  Loaded<Acc, N> found;
  memcpy(&found, value, sizeof(found));
  return found;
}

// The values of a vector that was loaded, or -0 where it is not `present`: adding -0 is no
// operation, for the compiler too.
template <int N, bool kPacked, typename Acc, typename T>
__device__ __forceinline__ void widen_values(
    const Loaded<T, N, kPacked>& loaded, bool present, Acc (&value)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) value[v] = present ? Acc(widen(loaded[v])) : Acc(-0.0);
}

// Loads the values of the thread's columns; the rest as widen_values().
template <int N, bool kPacked, typename Acc, typename T>
__device__ __forceinline__ void load_values(
    const Columns<N, kPacked>& columns, T* row, bool present, Acc (&value)[N]) {
  LoadedFrom<T, N, kPacked> loaded = {};
  if (present) loaded = load_pack(columns, row);
  widen_values(loaded, present, value);
}
template <template <int> typename ColumnsOf, int N, typename Acc, typename T>
__device__ __forceinline__ void load_values(
    const ColumnsOf<N>& columns, T* row, bool present, Acc (&value)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) {
    value[v] = present && columns.has(v) ? Acc(widen(read_at(row, columns.at(v)))) : Acc(-0.0);
  }
}
template <int N, typename Acc, typename T>
__device__ __forceinline__ void load_values(
    const RowTile<N>& columns, T* row, bool present, Acc (&value)[N]) {
  columns.each([&](int v, int64_t, int64_t column) {
    value[v] = present ? Acc(widen(read_at(row, column))) : Acc(-0.0);
  });
}

// Loads a value of a row or a group, or 0 where it is not `present`.
template <typename Acc, typename From>
__device__ __forceinline__ Acc load_value(const From& from, int64_t at, bool present) {
  return present ? Acc(widen(read(from + at))) : Acc(0);
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

// One of the values that exist; the thread has some.
template <int N, typename Acc>
__device__ __forceinline__ Acc one_of(const Columns<N, true>&, const Acc (&value)[N]) {
  return value[0];
}
template <int N, typename Acc>
__device__ __forceinline__ Acc one_of(const MaskedVector<N>& columns, const Acc (&value)[N]) {
  Acc one{};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (columns.has(v)) one = value[v];
  }
  return one;
}

// Stores a thread's partial sums of its columns as those of `block`: an array of the channels for
// each of `slots` sums. A tile of rows has such arrays for each of its rows.
template <int N, typename Acc>
__device__ __forceinline__ void store_partials(
    const Columns<N, true>& columns, Acc* partials, int64_t block, int slots, int slot,
    int64_t channels, int, const Acc (&value)[N]) {
  store_values(columns, partials + (block * slots + slot) * channels, value);
}
template <int N, typename Acc>
__device__ __forceinline__ void store_partials(
    const RowTile<N>& columns, Acc* partials, int64_t block, int slots, int slot, int64_t channels,
    int period, const Acc (&value)[N]) {
  columns.each([&](int v, int64_t row, int64_t column) {
    partials[((block * period + row) * slots + slot) * channels + column] = value[v];
  });
}

}  // namespace fusegen
