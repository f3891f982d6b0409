// How the generated kernels are launched, and their shared memory.
//
// Every launch goes through launch() or launch_in_order(), never through <<<>>>, and every kernel
// takes its shared memory from shared_memory(). Besides these, only instructions by their names
// differ between a GPU (any CUDA compiler) and fusegen's emulator, which compiles the same sources
// as C++ and runs them on a CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "explain.cuh"

namespace fusegen {

// Of the current device, as ten times the major plus the minor; 0 where there is none.
inline int compute_capability() {
  thread_local int known = -1, capability = 0;  // of the device that was asked last
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (device == known) return capability;
  const bool told =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  if (!told) return 0;
  known = device;
  return capability = 10 * major + minor;
}

// What this file is compiled for, in order, as ten times the compute capabilities; 0 where the
// compiler does not tell.
#if defined(__CUDA_ARCH_LIST__)
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
#else
constexpr int kArchitectures[] = {0};
#endif

// Whether code for the capability `compiled` runs on a device of this capability and waits for the
// kernel before it, as code from 9.0 on does. False for code that the driver compiles again for a
// newer generation, which may not wait.
constexpr bool code_waits(int compiled, int capability) {
  return compiled >= 90 && compiled / 10 == capability / 10 && compiled <= capability;
}

// Whether the kernels in this file do, on a device of this capability.
constexpr bool kernels_wait(int capability) {
  for (const int each : kArchitectures) {
    if (code_waits(each / 10, capability)) return true;
  }
  return false;
}

// Whether they exchange values with the other blocks of a cluster: code for earlier capabilities
// than 9.0 does not, whatever it runs on.
constexpr bool kernels_have_clusters(int capability) {
  bool all = true;
  for (const int each : kArchitectures) all = all && each >= 900;
  return all || kernels_wait(capability);
}

// The first statement of every kernel. Its launch, and that of its blocks, overlaps with the end of
// the kernel before it; after this statement everything that earlier kernels wrote is visible.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#if defined(__CUDACC__)
// Beyond 48 KiB of dynamic shared memory a kernel has to opt in.
template <typename... Params>
cudaError_t allow_shared_memory(void (*kernel)(Params...), std::size_t shared_bytes) {
  if (shared_bytes <= 48 * 1024) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared_bytes));
}
#endif

// Launches a kernel; overlaps: whether it may begin before the kernel before it ends.
template <typename... Params, typename... Args>
cudaError_t launch_with(
    bool overlaps, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
    cudaStream_t stream, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  if (explanation != nullptr) {
    explanation->launched(grid, block, shared_bytes);
    return cudaSuccess;
  }
#if defined(__CUDACC__)
  cudaError_t error = allow_shared_memory(kernel, shared_bytes);
  if (error == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    config.attrs = attributes;
    if (grid.z > 1) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {1, 1, grid.z};
    }
    if (overlaps) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    error = cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
  }
  // The caller gets the error from here, so it is cleared for the next cudaGetLastError().
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
#else
  static_cast<void>(overlaps);  // the emulator runs each launch to its end
  static_cast<void>(stream);
  return emulate::launch(kernel, grid, block, shared_bytes, std::forward<Args>(args)...);
#endif
}

// Launches kernel(args...) on the stream and returns the launch's own error, if any. A grid without
// blocks is a success, where the CUDA runtime would return an error. Where grid.z is more than 1,
// the blocks that differ in z alone are a cluster.
template <typename... Params, typename... Args>
cudaError_t launch(
    void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
    cudaStream_t stream, Args&&... args) {
  return launch_with(
      kernels_wait(compute_capability()), kernel, grid, block, shared_bytes, stream,
      std::forward<Args>(args)...);
}

// The same for a kernel whose blocks wait for blocks of lower indices. It follows a memset, so it
// cannot overlap with a kernel. Blocks start in the order of their indices on every GPU so far; the
// emulator is told to start them so.
template <typename... Params, typename... Args>
cudaError_t launch_in_order(
    void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
    cudaStream_t stream, Args&&... args) {
#if !defined(__CUDACC__)
  const emulate::InOrder in_order;
#endif
  return launch_with(
      false, kernel, grid, block, shared_bytes, stream, std::forward<Args>(args)...);
}

// Sets all bytes of an array, in the order of the stream.
template <typename T>
cudaError_t fill(T* array, int byte, int64_t count, cudaStream_t stream) {
  if (explanation != nullptr) return cudaSuccess;
  const cudaError_t error = cudaMemsetAsync(array, byte, count * sizeof(T), stream);
  // The caller gets the error from here, so it is cleared for the next cudaGetLastError().
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

// Resident blocks of a kernel per multiprocessor of the current device. Where the runtime does not
// know, as on the emulator, it is `promised`: the launch bounds leave registers for so many.
template <typename... Params>
int resident_blocks(
    void (*kernel)(Params...), dim3 block, std::size_t shared_bytes, int promised) {
  int blocks = 0;
#if defined(__CUDACC__)
  const int threads = int(block.x * block.y);
  cudaError_t error = allow_shared_memory(kernel, shared_bytes);
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes);
  }
  // The caller gets the error from here, so it is cleared for the next cudaGetLastError().
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
#endif
  return blocks > 0 ? blocks : promised;
}

// The same for clusters of the whole device.
template <typename... Params>
int64_t resident_clusters(
    void (*kernel)(Params...), int cluster, dim3 block, std::size_t shared_bytes,
    int64_t promised) {
  int clusters = 0;
#if defined(__CUDACC__)
  cudaError_t error = allow_shared_memory(kernel, shared_bytes);
  if (error == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1, 1, unsigned(cluster));
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {1, 1, unsigned(cluster)};
    config.attrs = &attribute;
    config.numAttrs = 1;
    error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  }
  // The caller gets the error from here, so it is cleared for the next cudaGetLastError().
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
#endif
  return clusters > 0 ? clusters : promised;
}

// The block's dynamic shared memory, aligned to 16 bytes: as many bytes as launch() was given.
// Every call returns the same address; a kernel with several arrays divides it.
template <typename T>
__device__ __forceinline__ T* shared_memory() {
#if defined(__CUDACC__)
  // Bytes, because all instances of this template must declare the array with one type.
  extern __shared__ __align__(16) unsigned char fusegen_shared_bytes[];
  return reinterpret_cast<T*>(fusegen_shared_bytes);
#else
  return static_cast<T*>(emulate::shared_bytes());
#endif
}

#if defined(__CUDACC__)
// What instructions call an address in shared memory.
__device__ __forceinline__ unsigned shared_address(const void* own) {
  return unsigned(__cvta_generic_to_shared(own));
}
#endif

// The array in shared memory that follows an array of `count` elements.
template <typename Next, typename T>
__device__ __forceinline__ Next* next_array(T* array, std::int64_t count) {
  return reinterpret_cast<Next*>(array + count);
}

}  // namespace fusegen
