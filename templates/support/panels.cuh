// Kernels that read the memory once though they need sums of columns before results: a panel of
// columns is still in the L2 when it is read again.
//
// Blocks take turns in the order of their indices. A step sums up the slices of one panel's rows
// and, in between, makes the results of the panel `lag` steps before; what follows from a panel's
// sums is worked out at the beginning of the step behind it. A counter for each panel says how much
// of that is done, and a block waits for it. It waits for blocks before it only. Those have started
// by then, as blocks do in this order on every GPU so far, so somebody can always go on.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "columns.cuh"
#include "panel_shapes.cuh"

namespace fusegen {

enum class PanelWork { kNone, kSums, kEnd, kResults };

struct PanelTurn {
  PanelWork work;
  int panel;
  int part;  // of its rows; of its columns where its sums come to an end
};

// What this block does. Of each panel `ends` blocks end the sums, each those of some columns.
__device__ __forceinline__ PanelTurn panel_turn(int panels, int slices, int ends, int lag) {
  const int a_step = ends + 2 * slices;
  const int step = int(blockIdx.x) / a_step;
  const int place = int(blockIdx.x) % a_step - ends;
  PanelTurn turn{PanelWork::kEnd, step - 1, place + ends};
  if (place >= 0 && place % 2 == 0) turn = {PanelWork::kSums, step, place / 2};
  if (place >= 0 && place % 2 == 1) turn = {PanelWork::kResults, step - lag, place / 2};
  if (turn.panel < 0 || turn.panel >= panels) turn.work = PanelWork::kNone;
  return turn;
}

// Adds one to a counter: who finds it there sees what this block wrote before.
__device__ __forceinline__ void count_part(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
#if defined(__CUDACC__)
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
#else
  emulate::add_and_release(counter);
#endif
}

// Waits until a counter has come to `parts`.
__device__ __forceinline__ void wait_for_parts(const unsigned* counter, int parts) {
  if (threadIdx.x == 0 && threadIdx.y == 0) {
#if defined(__CUDACC__)
    unsigned counted;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(counted) : "l"(counter) : "memory");
    } while (counted < unsigned(parts));
#else
    emulate::acquire_from(counter, unsigned(parts));
#endif
  }
  __syncthreads();
}

// What is read a second time stays in the L2 before anything else.
__device__ __forceinline__ uint4 load_word_to_keep(const uint4* from) {
#if defined(__CUDACC__)
  uint64_t policy;
  uint4 word;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(from), "l"(policy));
  return word;
#else
  return *from;
#endif
}
__device__ __forceinline__ uint2 load_word_to_keep(const uint2* from) {
#if defined(__CUDACC__)
  uint64_t policy;
  uint2 word;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
               : "=r"(word.x), "=r"(word.y)
               : "l"(from), "l"(policy));
  return word;
#else
  return *from;
#endif
}

template <int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_to_keep(
    const Columns<N, true>& columns, const T* row) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  Word<T, N> word[kWords];
  const auto* words = reinterpret_cast<const Word<T, N>*>(row + columns.first);
#pragma unroll
  for (int w = 0; w < kWords; ++w) word[w] = load_word_to_keep(words + w);
  Loaded<T, N> loaded;
  memcpy(&loaded, word, sizeof(loaded));
  return loaded;
}

// The second time it is the first to go, as are results.
template <int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_last(const Columns<N, true>& columns, const T* row) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  Word<T, N> word[kWords];
  const auto* words = reinterpret_cast<const Word<T, N>*>(row + columns.first);
#pragma unroll
  for (int w = 0; w < kWords; ++w) word[w] = __ldcs(words + w);
  Loaded<T, N> loaded;
  memcpy(&loaded, word, sizeof(loaded));
  return loaded;
}
template <int N, typename T>
__device__ __forceinline__ void store_last(
    const Columns<N, true>& columns, T* row, const Pack<T, N>& pack) {
  constexpr int kWords = sizeof(Pack<T, N>) / sizeof(Word<T, N>);
  Word<T, N> word[kWords];
  memcpy(word, &pack, sizeof(pack));
  auto* words = reinterpret_cast<Word<T, N>*>(row + columns.first);
#pragma unroll
  for (int w = 0; w < kWords; ++w) __stcs(words + w, word[w]);
}

}  // namespace fusegen
