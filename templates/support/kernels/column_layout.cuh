// What the column kernel knows of a program at compile time: where its fields are in shared
// memory, and what launch configurations are chosen by.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../column_work.cuh"
#include "../fetch.cuh"
#include "../packs.cuh"
#include "program.cuh"

namespace fusegen {

// A record of these has the types that its fields are declared with.
template <typename E>
struct TypeOf {
  using type = E;
};

// How many fields a mask has.
__host__ __device__ constexpr int fields_in(unsigned mask) {
  int count = 0;
  for (; mask != 0; mask &= mask - 1) ++count;
  return count;
}
// The bits of a mask below bit i.
__host__ __device__ constexpr unsigned below(unsigned mask, int i) {
  return mask & ((1u << i) - 1);
}

// Bytes of one element of all fields of Reads in a mask.
template <class P>
__host__ __device__ constexpr int read_bytes(unsigned mask) {
  typename P::template Reads<TypeOf> fields{};
  int bytes = 0;
  decltype(fields)::each(
      [&](auto i, auto field) {
        if (has_bit(mask, decltype(i)::value)) bytes += int(sizeof(typename decltype(field)::type));
      },
      fields);
  return bytes;
}

// The fields of Reads with elements of less than the 4 bytes that an asynchronous copy moves.
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

// The fields of Reads that passes from kFirst on read, and the values that one of them keeps.
template <class P, int kFirst>
__host__ __device__ constexpr unsigned reads_from() {
  unsigned mask = 0;
  for (int pass = kFirst; pass < P::kPasses; ++pass) mask |= P::kReadBy[pass];
  return mask;
}
template <class P, int kFirst>
__host__ __device__ constexpr unsigned kept_from() {
  unsigned mask = 0;
  for (int pass = kFirst; pass < P::kPasses; ++pass) mask |= P::kKeptInShared[pass];
  return mask;
}

// Whether any pass from kFirst on uses values of groups of channels.
template <class P, int kFirst>
__host__ __device__ constexpr bool uses_groups_from() {
  bool any = false;
  for (int pass = kFirst; pass < P::kPasses; ++pass) any = any || P::kGroupTensorsBy[pass] > 0;
  return any;
}

// Bit number `index` of those that are set in a mask, counted from the lowest; -1: there are less.
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

// What is where in shared memory: first the tiles of fields of Reads that later passes read again,
// then those of values that one pass keeps for another.
//
// Pass kFirst copies elements to shared memory some rows ahead. A field without a tile of its own
// comes through one of kept values, as far as there are such: the thread takes the elements out
// before it puts the values there. Other fields are loaded into registers.
template <class P, int kFirst>
struct ColumnLayout {
  static constexpr unsigned kReads = reads_from<P, kFirst>();
  static constexpr unsigned kTiles = P::kTileReads & kReads;
  static constexpr unsigned kKept = kept_from<P, kFirst>();
  static constexpr unsigned kFetched =
      kTiles | lowest_bits(kReads & ~kTiles, fields_in(kKept));
  // Bytes of an element in all tiles.
  static constexpr int kBytes =
      read_bytes<P>(kTiles) + fields_in(kKept) * int(sizeof(typename P::Acc));

  // Where tiles begin, in bytes for each of a tile's elements.
  __host__ __device__ static constexpr int begin_of_read(int read) {
    return read_bytes<P>(below(kTiles, read));
  }
  __host__ __device__ static constexpr int begin_of_kept(int kept) {
    return read_bytes<P>(kTiles) +
        fields_in(below(kKept, kept)) * int(sizeof(typename P::Acc));
  }
  // The kept value through whose tile a fetched field of Reads comes that has none of its own.
  __host__ __device__ static constexpr int kept_for(int read) {
    return set_bit(kKept, fields_in(below(kReads & ~kTiles, read)));
  }
};

// The components of the sums of a pass from kPass on, at most.
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

// What tiles are chosen by.
template <class P, int kFirst>
constexpr ColumnWork column_work() {
  using Layout = ColumnLayout<P, kFirst>;
  constexpr int kComponents = most_components<P, kFirst>();
  constexpr int kAcc = sizeof(typename P::Acc);
  int two_pass = 0;  // tensors that the two-pass schedule reads
  for (int pass = kFirst; pass < P::kPasses; ++pass) two_pass += fields_in(P::kReadBy[pass]);
  const int reads = fields_in(Layout::kReads);
  int kept = 0;
  if constexpr (P::kFitsL2) kept = read_bytes<P>(P::kReadBy[0] & P::kReadBy[1]);
  return {Layout::kBytes,
          int64_t(sizeof(typename P::T)),
          (kComponents > 1 ? 2 : 1) * kAcc,  // what warps exchange at once
          kComponents * kAcc,
          reads + P::template Writes<TypeOf>::kFields,
          two_pass - reads,
          kept};
}

// Of a record of tensors: a thread's vectors of each that are on their way.
template <int kVec, bool kPacked>
struct IncomingOf {
  template <typename E>
  using Of = Incoming<E, kVec, kPacked>;
};

}  // namespace fusegen
