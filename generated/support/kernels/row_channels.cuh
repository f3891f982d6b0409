// What a thread of the row kernel has of its columns: the channel tensors, and column sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../packs.cuh"
#include "../reduce_rows.cuh"
#include "program.cuh"
#include "row_passes.cuh"

namespace fusegen {

// The channel tensors that passes from kFirst on need. They are in registers, value[i] for the
// thread's item i; or, with kInShared, in shared memory, where value[0] is that of the item that
// was taken last. A thread uses its own places there only, so no barrier is needed.
template <class P, int kFirst, int kVec, int kItems, bool kInShared>
struct RowChannels {
  typename P::Channel value[kInShared ? 1 : kItems][kVec];
  unsigned char* memory;

  // Calls f(uses, pointer, present, field, place) with the place of item i.
  template <typename F>
  __device__ __forceinline__ void each_place(const P& p, int i, const F& f) const {
    unsigned char* next = memory;
    p.template channel_tensors<kFirst>([&](auto uses, auto* from, bool present, auto field) {
      if constexpr ((decltype(uses)::passes & RowPasses<P, kFirst>::kMask) != 0) {
        using Vector = LoadedFrom<std::remove_pointer_t<decltype(from)>, kVec>;
        auto* const places = reinterpret_cast<Vector*>(next);
        next = next_array<unsigned char>(places, kItems * blockDim.x);
        f(uses, from, present, field, places[i * blockDim.x + threadIdx.x]);
      }
    });
  }

  template <typename ColumnsOf>
  __device__ __forceinline__ void load(const P& p, const ColumnsOf (&columns)[kItems]) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if constexpr (kInShared) {
        each_place(p, i, [&](auto, auto* from, bool present, auto, auto& place) {
          if (present) place = load_constants(columns[i], from);
        });
      } else {
        load_channels<kFirst, RowPasses<P, kFirst>::kMask>(
            p, columns[i], columns[i].any(), value[i]);
      }
    }
  }

  // Sets value[kInShared ? 0 : i] to what a pass needs of item i.
  template <int kPass>
  __device__ __forceinline__ void take(const P& p, int i) {
    if constexpr (kInShared) {
      each_place(p, i, [&](auto uses, auto*, bool present, auto field, const auto& place) {
        if constexpr (has_bit(decltype(uses)::passes, kPass)) {
          typename P::Acc widened[kVec];
          widen_values(place, present, widened);
#pragma unroll
          for (int v = 0; v < kVec; ++v) value[0][v].*field = widened[v];
        }
      });
    }
  }

  // The end of the values in shared memory.
  __device__ __forceinline__ unsigned char* end(const P& p) const {
    unsigned char* last = memory;
    each_place(p, 0, [&](auto, auto*, bool, auto, auto& place) {
      last = next_array<unsigned char>(&place - threadIdx.x, kItems * blockDim.x);
    });
    return last;
  }
};

// Sums of the thread's columns over the rows of its block: in registers or, with kInShared, in
// shared memory, as RowChannels has its values.
template <typename Acc, int kSums, int kVec, int kItems, bool kInShared>
struct RowColumnSums {
  Acc value[kSums][kInShared ? 1 : kItems][kVec] = {};
  Loaded<Acc, kVec>* memory;

  __device__ __forceinline__ Loaded<Acc, kVec>& place(int sum, int i) const {
    return memory[(sum * kItems + i) * blockDim.x + threadIdx.x];
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; kInShared && i < kItems; ++i) put(i);
  }
  // take() sets value[n][kInShared ? 0 : i] to the sums of item i, put() stores them again.
  __device__ __forceinline__ void take(int i) {
#pragma unroll
    for (int n = 0; kInShared && n < kSums; ++n) widen_values(place(n, i), true, value[n][0]);
  }
  __device__ __forceinline__ void put(int i) const {
#pragma unroll
    for (int n = 0; kInShared && n < kSums; ++n) place(n, i) = loaded(value[n][0]);
  }

  // Sums item i over the rows_per_iteration rows of the block, in a fixed order, and stores the
  // results as partial results of `channels` each. `threads` and `exchange` are those of
  // sum_over_rows().
  template <typename ColumnsOf>
  __device__ __forceinline__ void store(
      int i, const ColumnsOf& columns, const ThreadPosition& position, int threads,
      int rows_per_iteration, Acc* exchange, Acc* partials, int64_t channels) {
    const int own = kInShared ? 0 : i;
    take(i);
#pragma unroll
    for (int n = 0; n < kSums; n += 2) {
      if (rows_per_iteration == 1) continue;
      if (n + 1 < kSums) {
        sum_over_rows<kVec>(
            position, threads, rows_per_iteration, exchange, value[n][own], value[n + 1][own]);
      } else {
        sum_over_rows<kVec>(position, threads, rows_per_iteration, exchange, value[n][own]);
      }
    }
    if (position.row != 0 || !columns.any()) return;
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      store_values(columns, partials + n * channels, value[n][own]);
    }
  }
};


}  // namespace fusegen
