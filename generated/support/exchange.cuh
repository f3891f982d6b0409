// What the warps of a row or group exchange where a cluster holds it, a part in each of its blocks.
//
// A warp sends what it has to every block, into a slot of its own there. A barrier in the block's
// shared memory counts the bytes that have come: who has waited for it may read them. Nothing else
// is waited for. The cluster's barrier would also wait until all that its threads have stored is in
// global memory, which takes longer than the rest of a turn.
//
// Exchanges take turns with two sets of slots, each with a barrier. A warp sends only after it has
// read the exchange before, and none is complete before all warps have sent. So nobody sends to a
// slot that is still read, or to a block that is gone.
#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "reduce.cuh"

namespace fusegen {

// Of a cluster that holds segments, at most: two for each lane of a warp.
constexpr int kClusterWarps = 64;

// How many values of shared memory exchanges of `values` a warp take: two sets of slots, and behind
// them the barriers.
constexpr int exchange_size(int values) { return 2 * values * kClusterWarps + 4; }

#if defined(__CUDACC__)

__device__ __forceinline__ unsigned shared_address(const void* own) {
  return unsigned(__cvta_generic_to_shared(own));
}
__device__ __forceinline__ unsigned shared_address_of_peer(const void* own, int rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
  return address;
}

// Makes a barrier for one thread that says how many bytes come.
__device__ __forceinline__ void make_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Says how many bytes come. Some may have, by then.
__device__ __forceinline__ void expect_bytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Stores a value where the block of this rank has `slot`, and tells its barrier.
__device__ __forceinline__ void send(float* slot, float value, uint64_t* barrier, int rank) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          shared_address_of_peer(slot, rank)),
      "r"(__float_as_uint(value)), "r"(shared_address_of_peer(barrier, rank))
      : "memory");
}
__device__ __forceinline__ void send(double* slot, double value, uint64_t* barrier, int rank) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
          shared_address_of_peer(slot, rank)),
      "l"(__double_as_longlong(value)), "r"(shared_address_of_peer(barrier, rank))
      : "memory");
}

// Waits until all bytes have come, for the first time, the second (parity 1), the third (0) ...
__device__ __forceinline__ void wait_for_bytes(uint64_t* barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

#else

// The emulator knows the cluster's barrier only: it orders as much.
inline void make_barrier(uint64_t*) {}
inline void expect_bytes(uint64_t*, int) {}
template <typename Acc>
void send(Acc* slot, Acc value, uint64_t*, int rank) {
  *static_cast<Acc*>(__cluster_map_shared_rank(slot, unsigned(rank))) = value;
}
inline void wait_for_bytes(uint64_t*, unsigned) {
  cluster_arrive();
  cluster_wait();
}

#endif

// The exchanges of one kernel, of kValues a warp at most. All threads of the cluster take part in
// each; blocks are of whole warps in one row.
template <typename Acc, int kValues>
class Exchange {
 public:
  // Before all others. `memory`: exchange_size(kValues) values, aligned to 16 bytes.
  __device__ __forceinline__ void begin(Acc* memory) {
    memory_ = memory;
    if (threadIdx.x < 2) make_barrier(barrier(threadIdx.x));
    cluster_arrive();
    cluster_wait();  // all blocks of the cluster have theirs
  }

  // Sums each value over the threads of the cluster; all of them get the results, to the same bits.
  template <typename... More>
  __device__ __forceinline__ void sum(Acc& first, More&... more) {
    constexpr int kSums = 1 + sizeof...(More);
    static_assert(kSums <= kValues);
    sum_in_warp(32, first, more...);
    const Acc own[kSums] = {first, more...};
    const Acc* const all = exchange(own);
    Acc* const sums[kSums] = {&first, &more...};
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      *sums[i] = Acc(0);
#pragma unroll
      for (int warp = lane; warp < kClusterWarps; warp += 32) {
        if (warp < warps()) *sums[i] += all[i * kClusterWarps + warp];
      }
    }
    sum_in_warp(32, first, more...);
  }

 private:
  // Of a set, 0 or 1; behind the last one are the barriers of both.
  __device__ __forceinline__ Acc* slots(unsigned set) const {
    return memory_ + set * (kValues * kClusterWarps);
  }
  __device__ __forceinline__ uint64_t* barrier(unsigned set) const {
    return behind<uint64_t>(slots(2), 0) + set;
  }
  __device__ __forceinline__ int warps() const { return int(gridDim.z * (blockDim.x / 32)); }

  // Brings the values of each warp, the same in all its lanes, to each block: value by value, in
  // the order of the blocks and their warps.
  template <int N>
  __device__ __forceinline__ const Acc* exchange(const Acc (&own)[N]) {
    const unsigned set = number_ % 2;
    uint64_t* const filled = barrier(set);
    if (threadIdx.x == 0) expect_bytes(filled, warps() * N * int(sizeof(Acc)));
    const int rank = threadIdx.x % 32;  // a lane for each block
    if (rank < int(gridDim.z)) {
      Acc* const slot = slots(set) + blockIdx.z * (blockDim.x / 32) + threadIdx.x / 32;
#pragma unroll
      for (int i = 0; i < N; ++i) send(slot + i * kClusterWarps, own[i], filled, rank);
    }
    wait_for_bytes(filled, number_ / 2 % 2);
    ++number_;
    return slots(set);
  }

  Acc* memory_;
  unsigned number_ = 0;  // of the next exchange
};

}  // namespace fusegen
