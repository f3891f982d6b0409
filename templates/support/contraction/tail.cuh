// The forward program of a chain in the epilogue of its product.
//
// A thread has pairs of columns, 16 in each of two rows, and with the product of each what the
// program makes of it. The product is stored all the same: the backward pass reads it, and so does
// the kernel that computes doubtful elements again.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../kernels/elements.cuh"
#include "../kernels/program.cuh"
#include "epilogue.cuh"

namespace fusegen {

// Puts the product where a program reads it: field kProduct of Reads.
template <int kProduct>
struct PutProduct {
  float z;

  template <int kField, typename Acc>
  __device__ __forceinline__ void operator()(Index<kField>, Acc& value) const {
    if constexpr (kField == kProduct) value = z;
  }
};

// P: a program without sums, of float32. aligned: whether every row and every channel tensor begins
// with a pair, of 8 bytes. vector_end: elements of a tensor that pairs may move, all or none.
template <class P>
struct Tail {
  static_assert(P::kPasses == 1 && Terms<P, 0>::kFields == 0);
  using Acc = typename P::Acc;
  using Vectors = typename P::template Reads<VectorsOf<2>::template Loaded>;
  static constexpr unsigned kReads = P::kReadBy[0] & ~(1u << P::kProduct);  // besides the product

  P program;
  bool aligned;
  int64_t vector_end;

  __device__ __forceinline__ void tile(
      const Product& p, const Fragment& mine, const float (&z)[64]) const {
    StoreProduct().tile(p, mine, z);
    if (aligned && mine.is_whole(p)) {
      of_tile<Columns<2, true>>(mine, z);
    } else {
      of_tile<MaskedVector<2>>(mine, z);
    }
  }

  __device__ __forceinline__ void element(
      const Product& p, int64_t i, int64_t j, float z) const {
    StoreProduct().element(p, i, j, z);
    const MaskedVector<2> column{j, 0, 1u};
    typename P::Channel channel[2];
    load_channels<0, 1u>(program, column, true, channel);
    Vectors in;
    load(column, i, 0, in);
    const typename P::Scalars scalars = program.scalars();
    store(column, i, 0, {z, z}, in, scalars, channel, row_values(scalars, i));
  }

 private:
  struct Values {
    float z[2];
  };

  // Of how many pairs all that is read is on its way before the first is computed: as many as leave
  // enough registers.
  static constexpr int pairs_ahead() {
    int inputs = 0, pairs = Fragment::kPairs;
    for (unsigned mask = kReads; mask != 0; mask >>= 1) inputs += mask & 1u;
    while (pairs > 1 && pairs * (2 * P::kChannelValuesBy[0] + 4 * inputs) > 64) pairs /= 2;
    return pairs;
  }

  static __device__ __forceinline__ auto pair_at(
      const Columns<2, true>*, const Fragment& mine, int pair, int64_t) {
    return Columns<2, true>{mine.column(pair), 1, 2};
  }
  static __device__ __forceinline__ auto pair_at(
      const MaskedVector<2>*, const Fragment& mine, int pair, int64_t columns) {
    return masked_vector<2>(mine.column(pair), 0, columns);
  }

  // Pair: of whole tiles, or of those that may end within the thread's part.
  template <typename Pair>
  __device__ __forceinline__ void of_tile(const Fragment& mine, const float (&z)[64]) const {
    constexpr bool kWhole = std::is_same_v<Pair, Columns<2, true>>;
    constexpr int kAhead = pairs_ahead();
    const auto has_row = [&](int half) { return kWhole || mine.row(half) < program.rows; };
    const auto columns_of = [&](int pair) {
      return pair_at(static_cast<const Pair*>(nullptr), mine, pair, program.channels);
    };
    const typename P::Scalars scalars = program.scalars();
    typename P::Row rows[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (has_row(half)) rows[half] = row_values(scalars, mine.row(half));
    }
#pragma unroll
    for (int first = 0; first < Fragment::kPairs; first += kAhead) {
      typename P::Channel channel[kAhead][2];
      Vectors in[kAhead][2];
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const Pair columns = columns_of(first + n);
        load_channels<0, 1u>(program, columns, columns.any(), channel[n]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!columns.any() || !has_row(half)) continue;
          load(columns, mine.row(half), vector_end, in[n][half]);
        }
      }
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const Pair columns = columns_of(first + n);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = Fragment::at(first + n, half);
          if (!columns.any() || !has_row(half)) continue;
          store(columns, mine.row(half), vector_end, {z[at], z[at + 1]}, in[n][half], scalars,
                channel[n], rows[half]);
        }
      }
    }
  }

  __device__ __forceinline__ typename P::Row row_values(
      const typename P::Scalars& scalars, int64_t i) const {
    Known<P> k = {scalars, {}, {}, {}};
    program.template row_tensors<0>([&](auto uses, auto* pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, 0)) {
        k.*field = present ? Acc(widen(read(pointer + i))) : Acc(0);
      }
    });
    program.derive_row(k);
    return k;
  }

  template <typename Pair>
  __device__ __forceinline__ void load(
      const Pair& columns, int64_t i, int64_t end, Vectors& in) const {
    each(LoadVectors<kReads, Pair>{columns, i * program.channels, end}, in, program.reads);
  }

  // Computes and stores what the program makes of a pair in row i.
  template <typename Pair>
  __device__ __forceinline__ void store(
      const Pair& columns, int64_t i, int64_t end, const Values& product, const Vectors& in,
      const typename P::Scalars& scalars, const typename P::Channel (&channel)[2],
      const typename P::Row& row) const {
    typename P::template Writes<VectorsOf<2>::template Stored> out;
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      Known<P> k = {scalars, channel[v], row, {}};
      program.derive_channel(k);
      Elements<P> x;
      each(TakeElement<kReads>{v}, x, in);
      each(PutProduct<P::kProduct>{product.z[v]}, x);
      typename P::Cached cached;
      Terms<P, 0> term;
      Results<P> y;
      program.template element<0, 0u>(x, k, cached, term, y);
      each(PutElement{v}, out, y);
    }
    each(
        [&](auto n, const auto& pair, auto* to) {
          constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(n)::value);
          if (!kMayLack || to != nullptr) {
            store_pack(columns, to, i * program.channels, end, pair);
          }
        },
        out, program.writes);
  }
};

}  // namespace fusegen
