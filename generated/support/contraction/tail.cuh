// The forward program of a chain in the epilogue of its product.
//
// A thread has pairs of columns, 16 in each of two rows, and with the product of each what the
// program makes of it. The product is stored all the same: the backward pass reads it, and so does
// the kernel that computes doubtful elements again.
#pragma once

#include <cstdint>

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

// P: a program without sums, of float32. vector_end: elements of a tensor that pairs may move, all
// or none.
template <class P>
struct Tail {
  static_assert(P::kPasses == 1 && Terms<P, 0>::kFields == 0);
  using Acc = typename P::Acc;
  using Pair = MaskedVector<2>;
  static constexpr unsigned kReads = P::kReadBy[0] & ~(1u << P::kProduct);  // besides the product

  P program;
  int64_t vector_end;

  __device__ __forceinline__ void tile(
      const Product& p, const Fragment& mine, const float (&z)[64]) const {
    StoreProduct().tile(p, mine, z);
    typename P::Row rows[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (mine.row(half) < p.rows) rows[half] = row_values(mine.row(half));
    }
#pragma unroll
    for (int pair = 0; pair < Fragment::kPairs; ++pair) {
      const Pair columns = masked_vector<2>(mine.column(pair), 0, p.columns);
      if (!columns.any()) continue;
      Known<P> known[2];
      know_columns(columns, known);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = Fragment::at(pair, half);
        if (mine.row(half) >= p.rows) continue;
        store(columns, mine.row(half), {z[at], z[at + 1]}, known, rows[half], vector_end);
      }
    }
  }

  __device__ __forceinline__ void element(
      const Product& p, int64_t i, int64_t j, float z) const {
    StoreProduct().element(p, i, j, z);
    const Pair column{j, 0, 1u};
    Known<P> known[2];
    know_columns(column, known);
    store(column, i, {z, z}, known, row_values(i), 0);
  }

 private:
  struct Values {
    float z[2];
  };

  __device__ __forceinline__ typename P::Row row_values(int64_t i) const {
    Known<P> k = {program.scalars(), {}, {}, {}};
    program.template row_tensors<0>([&](auto uses, auto* pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, 0)) {
        k.*field = present ? Acc(widen(read(pointer + i))) : Acc(0);
      }
    });
    program.derive_row(k);
    return k;
  }

  __device__ __forceinline__ void know_columns(const Pair& columns, Known<P> (&known)[2]) const {
    set_scalars(program, known);
    load_channels<0, 1u>(program, columns, true, known);
    derive_channels(program, known);
  }

  // Computes and stores what the program makes of a pair in row i.
  __device__ __forceinline__ void store(
      const Pair& columns, int64_t i, const Values& product, const Known<P> (&known)[2],
      const typename P::Row& row, int64_t end) const {
    const int64_t at = i * program.channels;
    typename P::template Reads<VectorsOf<2>::template Loaded> in;
    each(LoadVectors<kReads, Pair>{columns, at, end}, in, program.reads);
    typename P::template Writes<VectorsOf<2>::template Stored> out;
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      Known<P> k = known[v];
      static_cast<typename P::Row&>(k) = row;
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
          if (!kMayLack || to != nullptr) store_pack(columns, to, at, end, pair);
        },
        out, program.writes);
  }
};

}  // namespace fusegen
