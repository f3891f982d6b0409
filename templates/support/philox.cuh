// Philox4x32-10, a random generator without state (Salmon, Moraes, Dror and Shaw, Parallel random
// numbers: as easy as 1, 2, 3, 2011): 128 bits that follow from a counter and a key. Whoever has
// both makes the same bits again, in any order.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace fusegen {

// Four words of 32 bits: a counter, or what is made of it.
struct Words {
  unsigned word[4];
};

__device__ __forceinline__ Words philox(Words counter, uint64_t key) {
  constexpr uint64_t kMultiplier0 = 0xd2511f53u, kMultiplier1 = 0xcd9e8d57u;
  constexpr unsigned kWeyl0 = 0x9e3779b9u, kWeyl1 = 0xbb67ae85u;
  unsigned key0 = unsigned(key), key1 = unsigned(key >> 32);
  unsigned(&c)[4] = counter.word;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c[0], product1 = kMultiplier1 * c[2];
    c[0] = unsigned(product1 >> 32) ^ c[1] ^ key0;
    c[1] = unsigned(product1);
    c[2] = unsigned(product0 >> 32) ^ c[3] ^ key1;
    c[3] = unsigned(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

}  // namespace fusegen
