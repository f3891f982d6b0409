// Rows on their way to shared memory while the threads compute. Nobody waits for them before they
// are needed; a thread waits for its own only, and reads only what it has asked for itself.
#pragma once

#include <cstdint>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "packs.cuh"

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

// Whether elements are copied to shared memory while the thread computes: neighbours, or single
// ones of the 4 bytes that such a copy has at least. Others are loaded to registers.
template <bool kPacked, typename T>
constexpr bool kCopied = kPacked || sizeof(T) >= 4;

// How many rows a thread asks for before it uses the first: eight vectors on their way are enough,
// and single elements take longer to ask for.
template <bool kPacked, typename... T>
constexpr int kRowsAhead =
    !(kCopied<kPacked, T> && ...) ? 1 : kPacked && sizeof...(T) == 1 ? 8 : 4;

// A row's elements on their way to a thread's slot in shared memory, where something else may be
// kept once they were taken. What is copied for columns that do not exist is that of the first.
template <typename T, int N, bool kPacked>
class Incoming {
 public:
  template <typename Slot>
  __device__ __forceinline__ void fetch(
      const Columns<N, kPacked>& columns, Slot* slot, const T* row) {
    static_assert(sizeof(Slot) >= sizeof(Loaded<T, N, kPacked>));
    if constexpr (kPacked) {
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

  // The oldest row that was fetched, after waiting for it; it is in its slot from now on.
  __device__ __forceinline__ Loaded<T, N, kPacked> take(void* slot) {
    auto* place = static_cast<Loaded<T, N, kPacked>*>(slot);
    if constexpr (!kCopied<kPacked, T>) *place = loaded_;
    return *place;
  }

 private:
  Loaded<T, N, kPacked> loaded_ = {};
};

// The copies since the last call are those of one row.
__device__ __forceinline__ void end_row() {
  __pipeline_commit();
  asm volatile("" ::: "memory");  // what was taken is not read later than this
}

// Waits for all rows but the last kLeft.
template <int kLeft>
__device__ __forceinline__ void wait_for_rows() {
  __pipeline_wait_prior(kLeft);
  asm volatile("" ::: "memory");  // nothing is read before: the wait itself does not tell
}

}  // namespace fusegen
