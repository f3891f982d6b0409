// The GPUs that launch shapes are made for, and which of them runs a call.
//
// A line of the table serves all GPUs of a compute capability, so that all of these have the same
// launch shapes, and results have the same bits. fusegen/plan/launches/devices.py names a part of
// each.
#pragma once

#include <cstdint>
#include <iterator>

#include <cuda_runtime.h>

#include "launch.cuh"
#include "shapes.cuh"

namespace fusegen {

// shared_bytes: CUDA C++ Programming Guide, table of technical specifications. most_cluster: 1
// where there are no clusters, or where nobody has seen these kernels run with them.
constexpr Target kTargets[] = {
    // capability, multiprocessors, bytes of shared memory of a block and of the L2, most_cluster
    {75, 40, 64 << 10, 4 << 20, 1},
    {80, 108, 163 << 10, 40 << 20, 1},
    {86, 84, 99 << 10, 6 << 20, 1},
    {87, 16, 163 << 10, 4 << 20, 1},
    {89, 142, 99 << 10, 96 << 20, 1},
    {90, 132, 227 << 10, 50 << 20, 8},
    {100, 148, 227 << 10, 126 << 20, 8},
    {103, 148, 227 << 10, 126 << 20, 8},
    {110, 20, 227 << 10, 32 << 20, 1},
    {120, 170, 99 << 10, 96 << 20, 1},
    {121, 48, 99 << 10, 24 << 20, 1},
};

// Blocks of a cluster, at most, on a GPU of this compute capability; 1 where there is no line.
constexpr int most_cluster_of(int capability) {
  for (const Target& each : kTargets) {
    if (each.capability == capability) return each.most_cluster;
  }
  return 1;
}

// Whether this file is compiled for some GPU with clusters, and for one without: kernels that are
// for one kind alone are compiled where it is there.
constexpr bool compiled_for_clusters(bool with) {
  for (const int each : kArchitectures) {
    if ((most_cluster_of(each / 10) > 1) == with) return true;
  }
  return false;
}
constexpr bool kSomeHaveClusters = compiled_for_clusters(true);
constexpr bool kSomeLackClusters = compiled_for_clusters(false);

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  const bool told = cudaGetDevice(&device) == cudaSuccess &&
                    cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess;
  return told ? value : 0;
}

// The GPU at hand: the line of its compute capability. One without a line has what its runtime
// says, and no clusters. Without a GPU it is the last that this file is compiled for.
inline Target current_target() {
  const int at_hand = compute_capability();
  const int capability = at_hand != 0 ? at_hand : *(std::end(kArchitectures) - 1) / 10;
  for (Target each : kTargets) {
    if (each.capability != capability) continue;
    if (!kernels_have_clusters(capability)) each.most_cluster = 1;
    return each;
  }
  return {capability, device_attribute(cudaDevAttrMultiProcessorCount),
          device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
          device_attribute(cudaDevAttrL2CacheSize), 1};
}

// What a call asks of launches, besides the program. rows: by which kernels and their shapes are
// chosen, those of the call unless the program is row-invariant. vector_end: elements of a tensor
// that vectors may move, where not every row and group begins with one.
struct LaunchContext {
  Shapes shapes;
  Target target;
  int64_t rows;
  int64_t vector_end;
  cudaStream_t stream;
};

}  // namespace fusegen
