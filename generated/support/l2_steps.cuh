// Kernels that read the memory once though they need sums of columns before results: a tile of
// columns is still in the L2 when it is read again.
//
// Steps follow each other in the order of the blocks' indices. A step sums up the slices of one
// tile's rows and, in between, makes the results of the tile `lag` steps before; what follows from
// a tile's sums is worked out at the beginning of the next step. A counter for each tile says how
// much of that is done, and a block waits for it. It waits for blocks before it only. Those have
// started by then, as blocks start in this order on every GPU so far, so some block can always go
// on.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "packs.cuh"
#include "l2_shapes.cuh"
#include "reduce_columns.cuh"

namespace fusegen {

enum class L2Work { kNone, kSums, kEnd, kResults };

struct L2Task {
  L2Work work;
  int tile;
  int part;  // of its rows; of its columns where its sums come to an end
};

// What this block does. Of each tile `ends` blocks end the sums, each those of some columns.
__device__ __forceinline__ L2Task l2_task(int tiles, int slices, int ends, int lag) {
  const int a_step = ends + 2 * slices;
  const int step = int(blockIdx.x) / a_step;
  const int place = int(blockIdx.x) % a_step - ends;
  L2Task task{L2Work::kEnd, step - 1, place + ends};
  if (place >= 0 && place % 2 == 0) task = {L2Work::kSums, step, place / 2};
  if (place >= 0 && place % 2 == 1) task = {L2Work::kResults, step - lag, place / 2};
  if (task.tile < 0 || task.tile >= tiles) task.work = L2Work::kNone;
  return task;
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

// Where a block stores partial results of `columns` columns; those of the next sum are `stride`
// further.
template <typename Acc>
struct L2Partials {
  Acc* first;
  int64_t stride;
  int64_t columns;

  __device__ __forceinline__ L2Partials from(int slot) const {
    return {first + slot * stride, stride, columns};
  }
};

// Leaves the sums of N values of each array over the block's rows. `shared` holds kL2Warps *
// blockDim.x * N values for each array; returns what follows them.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ Acc* leave_sums(
    Acc* shared, const L2Partials<Acc>& partials, Acc (&first)[N], More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  Acc* const arrays[kArrays] = {first, more...};
  sum_over_rows_of_warp<N>(arrays);
  const int width = blockDim.x;
  const int sums = kArrays * width * N;  // of one warp
  if (thread_index() % 32 < width) {
    Acc* const own = shared + thread_index() / 32 * sums + threadIdx.x * N;
#pragma unroll
    for (int i = 0; i < kArrays * N; ++i) own[i / N * width * N + i % N] = arrays[i / N][i % N];
  }
  __syncthreads();
  // One thread a sum.
  for (int i = thread_index(); i < sums; i += kL2Threads) {
    Acc total = shared[i];
#pragma unroll
    for (int warp = 1; warp < kL2Warps; ++warp) total += shared[warp * sums + i];
    const int column = i % (width * N);
    if (column < partials.columns) partials.from(i / (width * N)).first[column] = total;
  }
  return shared + kL2Warps * sums;
}

// Leaves means of N columns and, as the next sum, squared distances to them: of `total` values,
// `count` of them of this thread, which the sums are of; the first row has some. What the rows of a
// warp have is merged in pairs, that of the warps around the mean of the first one, which has its
// share of the rows (Chan, Golub and LeVeque 1983, section 3).
// `shared` holds kL2Warps * (2 blockDim.x * N + 1) values; returns what follows them.
template <int N, typename Acc>
__device__ __forceinline__ Acc* leave_moments(
    Acc* shared, const L2Partials<Acc>& partials, const ShiftedSums<Acc> (&sums)[N], Acc count,
    Acc total) {
  Moments<Acc> moments[N];
#pragma unroll
  for (int v = 0; v < N; ++v) moments[v] = moments_of(sums[v], count);
#pragma unroll 1
  for (int offset = 16; offset >= int(blockDim.x); offset /= 2) {
    const Acc others = __shfl_xor_sync(kAllLanes, count, offset);
    const Acc share = count + others == Acc(0) ? Acc(0) : others / (count + others);
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const Acc distance = __shfl_xor_sync(kAllLanes, moments[v].mean, offset) - moments[v].mean;
      const Acc m2 = __shfl_xor_sync(kAllLanes, moments[v].m2, offset);
      moments[v].mean += share * distance;
      moments[v].m2 += m2 + count * share * distance * distance;
    }
    count += others;
  }
  const int columns = blockDim.x * N;
  Acc* const means = shared + kL2Warps;
  Acc* const m2s = means + kL2Warps * columns;
  const int warp = thread_index() / 32;
  if (thread_index() % 32 < int(blockDim.x)) {
#pragma unroll
    for (int v = 0; v < N; ++v) {
      means[warp * columns + threadIdx.x * N + v] = moments[v].mean;
      m2s[warp * columns + threadIdx.x * N + v] = moments[v].m2;
    }
    if (threadIdx.x == 0) shared[warp] = count;
  }
  __syncthreads();
  // One thread a column.
  const int column = thread_index();
  if (column < columns && column < partials.columns) {
    Moments<Acc> all{means[column], m2s[column]};
    Acc distances = Acc(0);
#pragma unroll
    for (int w = 1; w < kL2Warps; ++w) {
      const Acc distance = means[w * columns + column] - all.mean;
      distances += shared[w] * distance;
      all.m2 += m2s[w * columns + column] + shared[w] * distance * distance;
    }
    correct(all, distances, Acc(1) / total);
    partials.first[column] = all.mean;
    partials.from(1).first[column] = all.m2;
  }
  return m2s + kL2Warps * columns;
}

// What is read a second time stays in the L2 before anything else. A word is of one of the types in
// types.cuh.
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800

__device__ __forceinline__ uint64_t policy_to_keep() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint4 load_word_to_keep(const uint4* from) {
  uint4 word;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(from), "l"(policy_to_keep()));
  return word;
}
__device__ __forceinline__ uint2 load_word_to_keep(const uint2* from) {
  uint2 word;
  asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
               : "=r"(word.x), "=r"(word.y)
               : "l"(from), "l"(policy_to_keep()));
  return word;
}
// Those of a mask, whose elements have a byte each.
__device__ __forceinline__ unsigned int load_word_to_keep(const unsigned int* from) {
  unsigned int word;
  asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;"
               : "=r"(word)
               : "l"(from), "l"(policy_to_keep()));
  return word;
}
__device__ __forceinline__ unsigned short load_word_to_keep(const unsigned short* from) {
  unsigned short word;
  asm volatile("ld.global.L2::cache_hint.u16 %0, [%1], %2;"
               : "=h"(word)
               : "l"(from), "l"(policy_to_keep()));
  return word;
}

#else

template <typename Word>
__device__ __forceinline__ Word load_word_to_keep(const Word* from) {
  static_assert(sizeof(Word) > 1);
  return *from;
}

#endif

template <int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_to_keep(
    const Columns<N, true>& columns, const T* row) {
  return load_words<N>(
      row + columns.first, [](const auto* word) { return load_word_to_keep(word); });
}

// The second time it is the first to go, as are results.
template <int N, typename T>
__device__ __forceinline__ Loaded<T, N> load_last(const Columns<N, true>& columns, const T* row) {
  return load_words<N>(row + columns.first, [](const auto* word) { return __ldcs(word); });
}
template <int N, typename T>
__device__ __forceinline__ void store_last(
    const Columns<N, true>& columns, T* row, const Pack<T, N>& pack) {
  store_words(row + columns.first, pack, [](auto* at, const auto& word) { __stcs(at, word); });
}

}  // namespace fusegen
