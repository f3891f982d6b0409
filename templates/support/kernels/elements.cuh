// What kernels do with a thread's vectors of tensors, and with their elements.
//
// Each is a function object for each(), not a lambda: the instances of all kernels share it, so the
// compiler instantiates it once.
#pragma once

#include <cstdint>

#include "../packs.cuh"
#include "program.cuh"

namespace fusegen {

// Records of tensors with a thread's vector of each, as it is loaded and as it is stored.
template <int kVec, bool kPacked = true>
struct VectorsOf {
  template <typename E>
  using Loaded = fusegen::Loaded<ElementOf<E>, kVec, kPacked>;
  template <typename E>
  using Stored = Pack<ElementOf<E>, kVec>;
};

// A record of sums with the state of each in a thread, for each of its columns.
template <typename Acc, int kVec>
struct ColumnSumsOf {
  template <typename Reduction>
  using Of = typename RunningOf<Acc, Reduction>::type[kVec];
};

// Loads vectors of the row that begins at `row`, of the fields in kFields, as bits; `vector_end` is
// that of load_pack().
template <unsigned kFields, typename ColumnsOf>
struct LoadVectors {
  const ColumnsOf& columns;
  int64_t row, vector_end;

  template <int kField, typename Vector, typename Pointer>
  __device__ __forceinline__ void operator()(
      Index<kField>, Vector& vector, const Pointer& from) const {
    if constexpr (has_bit(kFields, kField)) vector = load_pack(columns, from, row, vector_end);
  }
};

// Takes element v of vectors, of the fields in kFields, as bits.
template <unsigned kFields>
struct TakeElement {
  int v;

  template <int kField, typename Acc, typename Vector>
  __device__ __forceinline__ void operator()(
      Index<kField>, Acc& value, const Vector& vector) const {
    if constexpr (has_bit(kFields, kField)) value = widen(vector[v]);
  }
};

// Stores results as element v of vectors.
struct PutElement {
  int v;

  template <int kField, typename Vector, typename Acc>
  __device__ __forceinline__ void operator()(
      Index<kField>, Vector& vector, const Acc& value) const {
    store_value(&vector[v], value);
  }
};

// Adds terms to the sums of a thread's column v; see add_term().
struct AddElement {
  int v;
  bool first;

  template <int kField, typename Sum, typename Acc>
  __device__ __forceinline__ void operator()(Index<kField>, Sum& sum, const Acc& term) const {
    add_term(sum[v], term, first);
  }
};

}  // namespace fusegen
