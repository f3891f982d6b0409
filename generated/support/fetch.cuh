// A pipeline of rows: asynchronous copies to shared memory while the threads compute.
//
// A thread waits for its own copies only, when it needs them, and reads only what it has copied
// itself, so the pipeline needs no barrier.
#pragma once

#include <cstdint>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "packs.cuh"
#include "spread.cuh"

namespace fusegen {

// The place of a thread's elements of a row: their index in a tile, and where the row begins in
// memory.
struct Place {
  int at;
  int64_t row;

  __device__ __forceinline__ void operator+=(const Place& step) {
    at += step.at;
    row += step.row;
  }
};

// Whether elements are copied asynchronously: aligned vectors, or single elements of at least 4
// bytes, the least that such a copy moves. Others are loaded to registers.
template <bool kPacked, typename T>
constexpr bool kCopied = kPacked || sizeof(T) >= 4;

// The depth of a thread's pipeline, in rows: eight vectors in flight are enough, and the copies of
// single elements take longer to issue.
template <bool kPacked, typename... T>
constexpr int kPipelineDepthFor =
    !(kCopied<kPacked, T> && ...) ? 1 : kPacked && sizeof...(T) == 1 ? 8 : 4;

// A thread's pipeline of one tensor. `slot` is the thread's place in shared memory for the elements
// of a row; it may be used for something else once they have been taken. For columns that do not
// exist the first column is copied.
template <typename T, int N, bool kPacked>
class Incoming {
 public:
  template <typename Slot>
  __device__ __forceinline__ void fetch(
      const Columns<N, kPacked>& columns, Slot* slot, const T* row) {
    static_assert(sizeof(Slot) >= sizeof(Loaded<T, N, kPacked>));
    if constexpr (kPacked && sizeof(Pack<T, N>) < 4) {
      *reinterpret_cast<Loaded<T, N>*>(slot) = load_pack(columns, row);
    } else if constexpr (kPacked) {
      constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
      auto* to = reinterpret_cast<Word<T, N>*>(slot);
      const auto* from = reinterpret_cast<const Word<T, N>*>(row + columns.first);
#pragma unroll
      for (int w = 0; w < kWords; ++w) __pipeline_memcpy_async(to + w, from + w, sizeof(*to));
    } else if constexpr (kCopied<kPacked, T>) {
      auto* to = reinterpret_cast<T*>(slot);
#pragma unroll
      for (int v = 0; v < N; ++v) __pipeline_memcpy_async(to + v, row + columns.at(v), sizeof(T));
    } else {
      loaded_ = load_pack(columns, row);
    }
  }

  // The elements of the oldest row that was fetched, to be called after waiting for it. From then
  // on they are in the slot.
  __device__ __forceinline__ Loaded<T, N, kPacked> take(void* slot) {
    auto* place = static_cast<Loaded<T, N, kPacked>*>(slot);
    if constexpr (!kCopied<kPacked, T>) *place = loaded_;
    return *place;
  }

 private:
  Loaded<T, N, kPacked> loaded_ = {};
};

// Of a tensor with fewer rows, which is in the L1 or the L2 most of the time.
template <typename T, bool kRepeats, int N, bool kPacked>
class Incoming<Spread<T, kRepeats>, N, kPacked> {
 public:
  template <typename Slot>
  __device__ __forceinline__ void fetch(
      const Columns<N, kPacked>& columns, Slot* slot, const SpreadPointer<T, kRepeats>& row) {
    static_assert(sizeof(Slot) >= sizeof(Loaded<T, N, kPacked>));
    *reinterpret_cast<Loaded<T, N, kPacked>*>(slot) = load_pack(columns, row);
  }
  __device__ __forceinline__ Loaded<T, N, kPacked> take(void* slot) {
    return *static_cast<Loaded<T, N, kPacked>*>(slot);
  }
};

// Ends a row: the copies since the last call belong to it.
__device__ __forceinline__ void end_row() {
  __pipeline_commit();
  asm volatile("" ::: "memory");  // no read of taken elements moves past this
}

// Waits for all rows but the last kLeft ones.
template <int kLeft>
__device__ __forceinline__ void wait_for_rows() {
  __pipeline_wait_prior(kLeft);
  asm volatile("" ::: "memory");  // no read moves before this: the wait alone does not prevent it
}

}  // namespace fusegen
