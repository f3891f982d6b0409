// A row in shared memory: the places of its vectors and of the channels' constants, and copies
// from memory to them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "../columns.cuh"
#include "../fetch.cuh"
#include "../packs.cuh"
#include "elements.cuh"
#include "program.cuh"
#include "row_passes.cuh"

namespace fusegen {

// What a thread knows of a launch.
struct RowSharedGrid {
  int vectors;  // of a row, for each thread
  int64_t vector_end;
};

// Starts to copy a vector of the row that begins at `row` to shared memory.
template <int N, typename T, typename Slot>
__device__ __forceinline__ void copy_words(const T* from, Slot* slot) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  auto* to = reinterpret_cast<Word<T, N>*>(slot);
  const auto* words = reinterpret_cast<const Word<T, N>*>(from);
#pragma unroll
  for (int w = 0; w < kWords; ++w) __pipeline_memcpy_async(to + w, words + w, sizeof(*to));
}
template <typename ColumnsOf, typename Slot, typename Pointer>
__device__ __forceinline__ void start_copy(
    const ColumnsOf& columns, Slot* slot, const Pointer& from, int64_t row, int64_t vector_end) {
  *slot = load_pack(columns, from, row, vector_end);
}
template <int N, typename Slot, typename T>
__device__ __forceinline__ void start_copy(
    const Columns<N, true>& columns, Slot* slot, const T* from, int64_t row, int64_t vector_end) {
  if constexpr (sizeof(Pack<T, N>) >= 4) {
    copy_words<N>(from + row + columns.first, slot);
  } else {
    *slot = load_pack(columns, from, row, vector_end);
  }
}
template <int N, typename Slot, typename T>
__device__ __forceinline__ void start_copy(
    const MaskedVector<N>& columns, Slot* slot, const T* from, int64_t row, int64_t vector_end) {
  if (sizeof(Pack<T, N>) >= 4 && row + columns.first + N <= vector_end) {
    if constexpr (sizeof(Pack<T, N>) >= 4) copy_words<N>(from + row + columns.first, slot);
  } else {
    *slot = load_pack(columns, from, row, vector_end);
  }
}

// The places of a thread's vectors of each tensor: all threads' first ones come first.
template <class P, int kFirst, int kVec>
struct RowSlots {
  using Passes = RowPasses<P, kFirst>;

  unsigned char* base;
  const RowSharedGrid& grid;

  __device__ __forceinline__ int places() const { return grid.vectors * int(blockDim.x); }
  __device__ __forceinline__ int place(int j) const { return j * int(blockDim.x) + threadIdx.x; }

  // The place of vector j of a field of Reads.
  template <int kField, typename E>
  __device__ __forceinline__ Loaded<E, kVec>* slot(int j) const {
    unsigned char* const slots =
        base + places() * (kVec * read_bytes<P>(below(Passes::kReads, kField)));
    return reinterpret_cast<Loaded<E, kVec>*>(slots) + place(j);
  }

  // Calls f(uses, place, pointer, present, field) for each channel tensor. The place of vector j is
  // null for the numbers of the channels, which are in no memory.
  template <typename F>
  __device__ __forceinline__ void each_constant(const P& p, int j, const F& f) const {
    unsigned char* next = base + places() * (kVec * read_bytes<P>(Passes::kReads));
    p.template channel_tensors<kFirst>([&](auto uses, auto* from, bool present, auto field) {
      using E = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
      if constexpr ((decltype(uses)::passes & Passes::kMask) != 0) {
        auto* const constants = reinterpret_cast<Loaded<E, kVec>*>(next);
        if constexpr (!std::is_same_v<E, ChannelNumber>) {
          next = next_array<unsigned char>(constants, places());
        }
        f(uses, constants + place(j), from, present, field);
      }
    });
  }
};

}  // namespace fusegen
