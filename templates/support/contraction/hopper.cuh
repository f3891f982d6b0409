// Hopper's instructions for matrix products: bulk tensor copies, barriers in shared memory, and
// wgmma. What each does is in the PTX manual ("Asynchronous Warpgroup Level Matrix Instructions").
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>

#include "../launch.cuh"

namespace fusegen {

// Barriers. A phase ends once `count` arrivals and all announced bytes have come.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void barrier_inits_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// At the barrier that block `rank` of the cluster has at this address. It orders nothing but the
// block's own accesses: a release at the scope of the cluster makes the whole product a quarter
// slower, and what follows an arrival here is a bulk copy, which waits for wgmma's reads alone.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier), "r"(rank)
      : "memory");
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra go;\n"
      "bra wait;\n"
      "go:\n"
      "}\n" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Copies one box of a tensor to shared memory; bytes that lie outside the tensor are zero, and are
// announced all the same.
__device__ __forceinline__ void copy_box(
    uint32_t to, const CUtensorMap& map, uint32_t barrier, int inner, int outer) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(&map), "r"(barrier), "r"(inner), "r"(outer)
      : "memory");
}
// The same for all blocks of the cluster whose bits are set: to the same place in each, and each is
// told by its own barrier.
__device__ __forceinline__ void copy_box_to(
    unsigned short blocks, uint32_t to, const CUtensorMap& map, uint32_t barrier, int inner,
    int outer) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(&map), "r"(barrier),
      "r"(inner), "r"(outer), "h"(blocks)
      : "memory");
}

// Where wgmma finds 64 x 16 or 128 x 16 elements of fp16 in shared memory, in the pattern of bulk
// copies with a swizzle of 128 bytes: rows of 64 elements, of which eight follow each other.
// next_block: bytes between blocks of 64 elements, where an operand's rows lie along the result
// (kTransposed below); eight rows of 128 bytes are one step of the other direction.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t next_block) {
  constexpr uint64_t kEightRows = 8 * 128, kSwizzle128 = 1;
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(next_block >> 4) << 16 |
         (kEightRows >> 4) << 32 | kSwizzle128 << 62;
}

__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// d (+)= a b^T for 64 x 16 elements a and 128 x 16 elements b, by the 128 threads of a warpgroup.
// add: 0 where d is to be written. kTransposed: whether an operand's elements that are neighbours
// in memory are neighbours in the result, not in the sum.
#define FUSEGEN_8(d, n)                                                                       \
  "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3]), "+f"(d[n + 4]), "+f"(d[n + 5]), \
      "+f"(d[n + 6]), "+f"(d[n + 7])
template <bool kLeftTransposed, bool kRightTransposed>
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,\n"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,\n"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,\n"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63},\n"
      "%64, %65, add, 1, 1, %67, %68;\n"
      "}\n"
      : FUSEGEN_8(d, 0), FUSEGEN_8(d, 8), FUSEGEN_8(d, 16), FUSEGEN_8(d, 24), FUSEGEN_8(d, 32),
        FUSEGEN_8(d, 40), FUSEGEN_8(d, 48), FUSEGEN_8(d, 56)
      : "l"(a), "l"(b), "r"(add), "n"(int(kLeftTransposed)), "n"(int(kRightTransposed)));
}
#undef FUSEGEN_8

// Registers of a thread, from here to the end of its warpgroup's branch.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fusegen
