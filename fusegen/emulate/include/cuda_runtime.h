// Stands in for the CUDA runtime's header when emitted sources are compiled as C++ and run on the CPU.
// It declares what emitted sources may use and nothing else: anything more fails to compile.
#pragma once

#if defined(__CUDACC__)
#error "this is the emulator's cuda_runtime.h; a CUDA compiler must find the toolkit's own"
#endif

#include "emulate_engine.h"
#include "emulate_math.h"
#include "emulate_types.h"

inline cudaError_t cudaGetLastError() { return fusegen::emulate::last_error(true); }
inline cudaError_t cudaPeekAtLastError() { return fusegen::emulate::last_error(false); }

// One device. Its compute capability is ten times the major plus the minor. Persistent blocks have several tiles each where it is small.
#if !defined(FUSEGEN_EMULATED_MULTIPROCESSORS)
#define FUSEGEN_EMULATED_MULTIPROCESSORS 132
#endif
#if !defined(FUSEGEN_EMULATED_CAPABILITY)
#define FUSEGEN_EMULATED_CAPABILITY 90
#endif
#if !defined(__CUDA_ARCH_LIST__)
#define __CUDA_ARCH_LIST__ (10 * FUSEGEN_EMULATED_CAPABILITY)
#endif
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = FUSEGEN_EMULATED_MULTIPROCESSORS; break;
    case cudaDevAttrComputeCapabilityMajor: *value = FUSEGEN_EMULATED_CAPABILITY / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = FUSEGEN_EMULATED_CAPABILITY % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 99 << 10; break;
    case cudaDevAttrL2CacheSize: *value = 6 << 20; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return "unknown error";
  }
}

// Barriers and shuffles take where they are called as default arguments, which errors then name.
#define FUSEGEN_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(FUSEGEN_SITE) { fusegen::emulate::block_barrier({file, line}); }

inline void __syncwarp(unsigned mask = 0xffffffffu, FUSEGEN_SITE) {
  using namespace fusegen::emulate;
  exchange(Exchange::barrier, mask, 0, 0, 32, {file, line});
}

inline void __cluster_barrier_arrive(FUSEGEN_SITE) { fusegen::emulate::cluster_arrive({file, line}); }
inline void __cluster_barrier_wait(FUSEGEN_SITE) { fusegen::emulate::cluster_wait({file, line}); }

inline void* __cluster_map_shared_rank(const void* address, unsigned rank) {
  return fusegen::emulate::peer_address(const_cast<void*>(address), rank);
}

namespace fusegen::emulate {

template <typename T>
inline constexpr bool can_shuffle = false;
template <> inline constexpr bool can_shuffle<int> = true;
template <> inline constexpr bool can_shuffle<unsigned> = true;
template <> inline constexpr bool can_shuffle<long> = true;
template <> inline constexpr bool can_shuffle<unsigned long> = true;
template <> inline constexpr bool can_shuffle<long long> = true;
template <> inline constexpr bool can_shuffle<unsigned long long> = true;
template <> inline constexpr bool can_shuffle<float> = true;
template <> inline constexpr bool can_shuffle<double> = true;

template <typename T>
inline T shuffle(Exchange kind, unsigned mask, T value, int operand, int width, Site site) {
  static_assert(can_shuffle<T>, "no shuffle takes this type");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(kind, mask, bits, operand, width, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace fusegen::emulate

template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, FUSEGEN_SITE) {
  using namespace fusegen::emulate;
  return shuffle(Exchange::index, mask, value, lane, width, {file, line});
}

template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, FUSEGEN_SITE) {
  using namespace fusegen::emulate;
  return shuffle(Exchange::up, mask, value, static_cast<int>(delta), width, {file, line});
}

template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, FUSEGEN_SITE) {
  using namespace fusegen::emulate;
  return shuffle(Exchange::down, mask, value, static_cast<int>(delta), width, {file, line});
}

template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, FUSEGEN_SITE) {
  using namespace fusegen::emulate;
  return shuffle(Exchange::exclusive_or, mask, value, lane_mask, width, {file, line});
}

inline unsigned __ballot_sync(unsigned mask, unsigned predicate, FUSEGEN_SITE) {
  using namespace fusegen::emulate;
  unsigned found = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1u)) continue;
    if (exchange(Exchange::index, mask, predicate != 0, lane, 32, {file, line})) found |= 1u << lane;
  }
  return found;
}

#define FUSEGEN_ATOMIC(name, type, kind)                                           \
  inline type name(type* number, type value) {                                     \
    using namespace fusegen::emulate;                                              \
    const auto bits = static_cast<std::uint64_t>(value);                           \
    return static_cast<type>(update_atomically(number, sizeof *number, Atomic::kind, bits)); \
  }
FUSEGEN_ATOMIC(atomicAdd, unsigned, add)
FUSEGEN_ATOMIC(atomicAdd, unsigned long long, add)
FUSEGEN_ATOMIC(atomicMax, int, largest)
FUSEGEN_ATOMIC(atomicOr, unsigned, bits)
#undef FUSEGEN_ATOMIC

#undef FUSEGEN_SITE
