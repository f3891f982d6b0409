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

// Exchanges of what the blocks of a cluster have reduced, of kValues values per block at most, in
// block_exchange_size(kValues) values of shared memory. Between two of them the threads of a block
// wait for each other: so no slot is written to while a thread still reads it.
template <typename Acc, int kValues>
class BlockExchange : public ExchangeSlots<Acc, kValues * kClusterBlocks> {
 public:
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
    const Acc* const all = this->template exchange<1>(
        own, blockIdx.z * kValues, int(threadIdx.x), int(gridDim.z));
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
};

}  // namespace fusegen
