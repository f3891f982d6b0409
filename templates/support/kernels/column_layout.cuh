// Properties of a program for the kernels whose columns stay on chip: the layout of its fields in
// shared memory, and by what launch configurations are chosen.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../column_work.cuh"
#include "../fetch.cuh"
#include "../packs.cuh"
#include "program.cuh"

namespace fusegen {

// A record of these has the types of its fields as members `type`.
template <typename E>
struct TypeOf {
  using type = ElementOf<E>;
};

// The number of fields in a mask.
__host__ __device__ constexpr int fields_in(unsigned mask) {
  int count = 0;
  for (; mask != 0; mask &= mask - 1) ++count;
  return count;
}
// The bits of a mask below bit i.
__host__ __device__ constexpr unsigned below(unsigned mask, int i) {
  return mask & ((1u << i) - 1);
}

// Bytes per element of the fields of Reads or Writes in a mask.
template <typename Record>
__host__ __device__ constexpr int bytes_of(unsigned mask) {
  Record fields{};
  int bytes = 0;
  Record::each(
      [&](auto i, auto field) {
        // A mask takes two bytes, so that what follows it is aligned as behind 16-bit elements.
        constexpr int kOwn = int(sizeof(typename decltype(field)::type));
        if (has_bit(mask, decltype(i)::value)) bytes += kOwn < 2 ? 2 : kOwn;
      },
      fields);
  return bytes;
}
template <class P>
__host__ __device__ constexpr int read_bytes(unsigned mask) {
  return bytes_of<typename P::template Reads<TypeOf>>(mask);
}
template <class P>
__host__ __device__ constexpr int write_bytes(unsigned mask) {
  return bytes_of<typename P::template Writes<TypeOf>>(mask);
}

// The fields of Reads with elements of less than 4 bytes, the least that an asynchronous copy
// moves.
template <class P>
__host__ __device__ constexpr unsigned short_reads() {
  typename P::template Reads<TypeOf> fields{};
  unsigned mask = 0;
  decltype(fields)::each(
      [&](auto i, auto field) {
        if (sizeof(typename decltype(field)::type) < 4) mask |= 1u << decltype(i)::value;
      },
      fields);
  return mask;
}

// The sums of a pass that are means and squares.
template <class P, int kPass>
__host__ __device__ constexpr unsigned moments_of_pass() {
  typename P::template Sums<kPass, TypeOf> fields{};
  unsigned mask = 0;
  decltype(fields)::each(
      [&](auto i, auto field) {
        using Reduction = typename decltype(field)::type;
        if (std::is_same_v<Reduction, MeanAndSquares>) mask |= 1u << decltype(i)::value;
      },
      fields);
  return mask;
}

// The fields of Reads that passes from kFirst on read, and the values that one of them caches.
template <class P, int kFirst>
__host__ __device__ constexpr unsigned reads_from() {
  unsigned mask = 0;
  for (int pass = kFirst; pass < P::kPasses; ++pass) mask |= P::kReadBy[pass];
  return mask;
}
template <class P, int kFirst>
__host__ __device__ constexpr unsigned cached_from() {
  unsigned mask = 0;
  for (int pass = kFirst; pass < P::kPasses; ++pass) mask |= P::kCachedInShared[pass];
  return mask;
}

// Whether any pass from kFirst on uses values of groups of channels.
template <class P, int kFirst>
__host__ __device__ constexpr bool uses_groups_from() {
  bool any = false;
  for (int pass = kFirst; pass < P::kPasses; ++pass) any = any || P::kGroupTensorsBy[pass] > 0;
  return any;
}

// The place of set bit number `index` of a mask, counted from the lowest; -1 if there are fewer.
__host__ __device__ constexpr int set_bit(unsigned mask, int index) {
  for (int i = 0; i < 32; ++i) {
    if (has_bit(mask, i) && index-- == 0) return i;
  }
  return -1;
}
// The lowest bits of a mask, `count` of them or all that there are.
__host__ __device__ constexpr unsigned lowest_bits(unsigned mask, int count) {
  const int end = set_bit(mask, count);
  return end < 0 ? mask : below(mask, end);
}

// The layout of shared memory: first the tiles of fields of Reads that later passes read again,
// then those of values that one pass caches for another.
//
// Pass kFirst copies elements to shared memory some rows ahead. A field without a tile of its own
// is copied to the tile of a cached value, as far as there are such: the thread reads the elements
// before it stores the value there. Other fields are loaded into registers.
template <class P, int kFirst>
struct ColumnLayout {
  static constexpr unsigned kReads = reads_from<P, kFirst>();
  static constexpr unsigned kTiles = P::kTileReads & kReads;
  static constexpr unsigned kCached = cached_from<P, kFirst>();
  static constexpr unsigned kFetched =
      kTiles | lowest_bits(kReads & ~kTiles, fields_in(kCached));
  // Bytes of an element in all tiles.
  static constexpr int kBytes =
      read_bytes<P>(kTiles) + fields_in(kCached) * int(sizeof(typename P::Acc));

  // Where tiles begin, in bytes for each of a tile's elements.
  __host__ __device__ static constexpr int begin_of_read(int read) {
    return read_bytes<P>(below(kTiles, read));
  }
  __host__ __device__ static constexpr int begin_of_cached(int cached) {
    return read_bytes<P>(kTiles) +
        fields_in(below(kCached, cached)) * int(sizeof(typename P::Acc));
  }
  // The cached value to whose tile a fetched field of Reads is copied that has no tile of its own.
  __host__ __device__ static constexpr int cached_for(int read) {
    return set_bit(kCached, fields_in(below(kReads & ~kTiles, read)));
  }
};

// The most components of the sums of any pass from kPass on.
template <class P, int kPass>
__host__ __device__ constexpr int most_components() {
  if constexpr (kPass == P::kPasses) {
    return 0;
  } else {
    constexpr int kOwn = P::template Sums<kPass, TypeOf>::kComponents;
    constexpr int kLater = most_components<P, kPass + 1>();
    return kOwn > kLater ? kOwn : kLater;
  }
}

// The work of a program, by which tiles are chosen.
template <class P, int kFirst>
constexpr ColumnWork column_work() {
  using Layout = ColumnLayout<P, kFirst>;
  constexpr int kComponents = most_components<P, kFirst>();
  constexpr int kAcc = sizeof(typename P::Acc);
  int two_pass = 0;  // tensors that the two-pass schedule reads
  for (int pass = kFirst; pass < P::kPasses; ++pass) two_pass += fields_in(P::kReadBy[pass]);
  const int reads = fields_in(Layout::kReads);
  return {Layout::kBytes,
          int64_t(sizeof(typename P::T)),
          (kComponents > 1 ? 2 : 1) * kAcc,  // bytes that warps exchange at once
          kComponents * kAcc,
          reads + P::template Writes<TypeOf>::kFields,
          two_pass - reads};
}

// A record of tensors with a thread's pipeline of each.
template <int kVec, bool kPacked>
struct IncomingOf {
  template <typename E>
  using Of = Incoming<std::conditional_t<kIsSpread<E>, E, ElementOf<E>>, kVec, kPacked>;
};

}  // namespace fusegen
