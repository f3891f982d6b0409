// The tiles of the column kernel in shared memory.
#pragma once

#include <cuda_runtime.h>

#include "../packs.cuh"
#include "column_layout.cuh"
#include "program.cuh"

namespace fusegen {

// The tiles of a block, as ColumnLayout has them. Each is an array with a vector per thread and
// row.
template <class P, int kFirst, int kVec, bool kPacked>
struct ColumnTiles {
  using Layout = ColumnLayout<P, kFirst>;

  unsigned char* memory;
  int elements;  // of a tile

  // The tile of a field of Reads, and of a field of Cached.
  template <int kField, typename E>
  __device__ __forceinline__ Loaded<E, kVec, kPacked>* read() const {
    constexpr int kBegin = Layout::begin_of_read(kField);
    return reinterpret_cast<Loaded<E, kVec, kPacked>*>(memory + elements * kBegin);
  }
  template <int kField>
  __device__ __forceinline__ Pack<typename P::Acc, kVec>* cached() const {
    constexpr int kBegin = Layout::begin_of_cached(kField);
    return reinterpret_cast<Pack<typename P::Acc, kVec>*>(memory + elements * kBegin);
  }
  // The tile to which a field of Reads is copied.
  template <int kField, typename E>
  __device__ __forceinline__ auto* fetched() const {
    if constexpr (has_bit(Layout::kTiles, kField)) {
      return read<kField, E>();
    } else {
      return cached<Layout::cached_for(kField)>();
    }
  }
};

}  // namespace fusegen
