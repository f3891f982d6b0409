// The exchange of what the blocks of a cluster have reduced, each for itself.
//
// As in exchange.cuh values are sent to every block, whose mbarrier counts them. But a block sends
// once, so a cluster may have any number of warps, and records are combined as well as sums.
#pragma once

#include <cstdint>
#include <cstring>

#include "exchange.cuh"

namespace fusegen {

constexpr int kClusterBlocks = 8;  // at most

// The size of shared memory, in values, of exchanges of `values` values per block: two sets of
// slots, then the mbarriers.
constexpr int block_exchange_size(int values) { return 2 * values * kClusterBlocks + 4; }

// Exchanges of what the blocks of a cluster have reduced, of kValues values per block at most. All
// threads of the cluster take part in each, and between two of them the threads of a block wait for
// each other: so no slot is written to while a thread still reads it.
template <typename Acc, int kValues>
class BlockExchange {
 public:
  // To be called first. `memory`: block_exchange_size(kValues) values, aligned to 16 bytes.
  __device__ __forceinline__ void begin(Acc* memory) {
    memory_ = memory;
    if (threadIdx.x < 2) make_barrier(barrier(threadIdx.x));
    cluster_arrive();
    cluster_wait();  // the mbarriers of all blocks are initialised
  }

  // Reduces each value over the blocks, in the order of their ranks. All threads of a block have
  // the same values before, and all of the cluster afterwards. A value is a number or, as a record
  // of reductions.cuh, several.
  template <typename Op, typename T, typename... More>
  __device__ __forceinline__ void reduce(T& first, More&... more) {
    constexpr int kCount = 1 + sizeof...(More), kNumbers = sizeof(T) / sizeof(Acc);
    static_assert(kCount * kNumbers <= kValues);
    T* const values[kCount] = {&first, &more...};
    Acc own[kCount * kNumbers];
#pragma unroll
    for (int i = 0; i < kCount; ++i) memcpy(own + i * kNumbers, values[i], sizeof(T));
    const Acc* const all = exchange(own);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      *values[i] = Op::template identity<T>();
#pragma unroll 1
      for (int rank = 0; rank < int(gridDim.z); ++rank) {
        T part;
        memcpy(&part, all + rank * kValues + i * kNumbers, sizeof(T));
        *values[i] = Op::combine(*values[i], part);
      }
    }
  }

 private:
  __device__ __forceinline__ Acc* slots(unsigned set) const {
    return memory_ + set * (kValues * kClusterBlocks);
  }
  __device__ __forceinline__ uint64_t* barrier(unsigned set) const {
    return next_array<uint64_t>(slots(2), 0) + set;
  }

  // Sends the values of this block to each block, and returns those of all, kValues apart.
  template <int N>
  __device__ __forceinline__ const Acc* exchange(const Acc (&own)[N]) {
    const unsigned set = number_ % 2;
    uint64_t* const filled = barrier(set);
    if (threadIdx.x == 0) expect_bytes(filled, int(gridDim.z) * N * int(sizeof(Acc)));
    if (threadIdx.x < gridDim.z) {  // a thread for each block
      Acc* const slot = slots(set) + blockIdx.z * kValues;
#pragma unroll
      for (int i = 0; i < N; ++i) send(slot + i, own[i], filled, int(threadIdx.x));
    }
    wait_for_bytes(filled, number_ / 2 % 2);
    ++number_;
    return slots(set);
  }

  Acc* memory_;
  unsigned number_ = 0;  // of exchanges so far
};

}  // namespace fusegen
