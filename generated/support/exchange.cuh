// The exchange of sums between the warps of a row or group that a cluster shares, with a part of it
// in each block.
//
// A warp sends its values to every block, each into a slot of its own. An mbarrier in the block's
// shared memory counts the bytes that have been written; a thread that has waited for it may read
// them. The barrier of the cluster would also wait until all stores of its threads are in global
// memory, which takes longer than the rest of an iteration.
//
// Exchanges alternate between two sets of slots, each with an mbarrier. A warp sends only after it
// has read the exchange before, and an exchange is complete only after all warps have sent. So no
// warp writes to a slot that another still reads, or to a block that has ended.
#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "reduce_lanes.cuh"

namespace fusegen {

// Warps of a cluster, at most: two for each lane of a warp.
constexpr int kClusterWarps = 64;

// The size of shared memory, in values, of exchanges of `values` values per warp: two sets of
// slots, then the mbarriers.
constexpr int exchange_size(int values) { return 2 * values * kClusterWarps + 4; }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900

// No clusters before sm_90: launchers make none there.
__device__ __forceinline__ void make_barrier(uint64_t*) {}
__device__ __forceinline__ void expect_bytes(uint64_t*, int) {}
template <typename Acc>
__device__ __forceinline__ void send(Acc*, Acc, uint64_t*, int) {}
__device__ __forceinline__ void wait_for_bytes(uint64_t*, unsigned) {}

#elif defined(__CUDACC__)

__device__ __forceinline__ unsigned shared_address_of_peer(const void* own, int rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
  return address;
}

// Initialises an mbarrier; one thread arrives, which also says how many bytes to expect.
__device__ __forceinline__ void make_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Says how many bytes to expect. Some may already have been written.
__device__ __forceinline__ void expect_bytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Stores a value to the slot of the block of this rank; the store counts at that block's mbarrier.
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

// Waits until all bytes have been written. The parity is 0 at the first use, 1 at the second, and
// so on.
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

// The emulator has the barrier of the cluster only, which orders as much.
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

// The exchanges of one kernel, of kValues values per warp at most. All threads of the cluster take
// part in each; a block is one row of threads, a multiple of 32.
template <typename Acc, int kValues>
class Exchange {
 public:
  // To be called first. `memory`: exchange_size(kValues) values, aligned to 16 bytes.
  __device__ __forceinline__ void begin(Acc* memory) {
    memory_ = memory;
    if (threadIdx.x < 2) make_barrier(barrier(threadIdx.x));
    cluster_arrive();
    cluster_wait();  // the mbarriers of all blocks are initialised
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
  // The slots and the mbarrier of a set, 0 or 1; the mbarriers of both follow the last set.
  __device__ __forceinline__ Acc* slots(unsigned set) const {
    return memory_ + set * (kValues * kClusterWarps);
  }
  __device__ __forceinline__ uint64_t* barrier(unsigned set) const {
    return next_array<uint64_t>(slots(2), 0) + set;
  }
  __device__ __forceinline__ int warps() const { return int(gridDim.z * (blockDim.x / 32)); }

  // Sends the values of each warp, the same in all its lanes, to each block, and returns those of
  // all warps: value by value, in the order of the blocks and their warps.
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
  unsigned number_ = 0;  // of exchanges so far
};

}  // namespace fusegen
