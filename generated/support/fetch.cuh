// Rows on their way to shared memory while the threads compute: copies that take no registers, and
// that nobody waits for before they are needed. A thread waits for its own copies only, and reads
// only what it has asked for itself.
#pragma once

#include <cstdint>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "types.cuh"

namespace fusegen {

// Where a thread's elements of a row are: in a tile, and where the row begins in memory.
struct Place {
  int at;
  int64_t row;

  __device__ __forceinline__ void operator+=(const Place& step) {
    at += step.at;
    row += step.row;
  }
};

// How many rows a thread asks for before it uses the first.
constexpr int kRowsAhead = 3;

// Begins to copy the thread's neighbouring elements of a row to `slot`, in shared memory. They are
// 16 bytes, a multiple of that, or 8.
template <int N, bool kPacked, typename T>
__device__ __forceinline__ void fetch_pack(
    const Columns<N, kPacked>& columns, void* slot, const T* row) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  auto* to = static_cast<Word<T, N>*>(slot);
  const auto* from = reinterpret_cast<const Word<T, N>*>(row + columns.first);
#pragma unroll
  for (int w = 0; w < kWords; ++w) __pipeline_memcpy_async(to + w, from + w, sizeof(Word<T, N>));
}

// The copies since the last call are those of one row.
__device__ __forceinline__ void end_row() { __pipeline_commit(); }

// Waits for all rows but the last kLeft.
template <int kLeft>
__device__ __forceinline__ void wait_for_rows() {
  __pipeline_wait_prior(kLeft);
}

// What was copied to `slot`.
template <typename T, int N, bool kPacked>
__device__ __forceinline__ Loaded<T, N, kPacked> fetched(const void* slot) {
  return *static_cast<const Loaded<T, N, kPacked>*>(slot);
}

}  // namespace fusegen
