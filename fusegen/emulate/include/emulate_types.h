// The words, vector types and error codes of CUDA C++ that emitted sources use.
#pragma once

#include <cstddef>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#ifndef __forceinline__  // for a debugger, it is another
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// __shared__ is left out on purpose: shared memory comes from fusegen::shared_memory(), where the emulator
// can poison and guard it. A static array fails to compile.

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// As strictly aligned as on a GPU: a copy looks at both addresses, which are hidden from the compiler, for it would
// take them to be what the type promises. -fsanitize=alignment looks at every reference, and takes long to compile.
template <typename T>
inline void emulate_aligned(const T* at) {
  auto address = reinterpret_cast<std::uintptr_t>(at);
  __asm__("" : "+r"(address));
  if (address % alignof(T) != 0) __builtin_trap();
}
#define FUSEGEN_VECTOR_COPIES(name)                          \
  name() = default;                                          \
  name(const name& other) {                                  \
    emulate_aligned(&other);                                 \
    __builtin_memcpy(this, &other, sizeof(name));            \
  }                                                          \
  name& operator=(const name& other) {                       \
    emulate_aligned(this);                                   \
    emulate_aligned(&other);                                 \
    __builtin_memcpy(this, &other, sizeof(name));            \
    return *this;                                            \
  }
#define FUSEGEN_VECTOR_TYPES(type, name)                                               \
  struct alignas(2 * sizeof(type)) name##2 {                                           \
    type x, y;                                                                         \
    name##2(type x, type y) : x(x), y(y) {}                                            \
    FUSEGEN_VECTOR_COPIES(name##2)                                                     \
  };                                                                                   \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 {                   \
    type x, y, z, w;                                                                   \
    name##4(type x, type y, type z, type w) : x(x), y(y), z(z), w(w) {}                \
    FUSEGEN_VECTOR_COPIES(name##4)                                                     \
  };                                                                                   \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                     \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
FUSEGEN_VECTOR_TYPES(float, float)
FUSEGEN_VECTOR_TYPES(double, double)
FUSEGEN_VECTOR_TYPES(int, int)
FUSEGEN_VECTOR_TYPES(unsigned, uint)
FUSEGEN_VECTOR_TYPES(unsigned short, ushort)
#undef FUSEGEN_VECTOR_TYPES
#undef FUSEGEN_VECTOR_COPIES

// A store that the compiler leaves in one piece.
template <typename T>
inline void __stwb(T* address, T value) { *address = value; }

using cudaStream_t = struct CUstream_st*;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNotSupported = 801,
  cudaErrorLaunchFailure = 719,
  cudaErrorUnknown = 999,
};
