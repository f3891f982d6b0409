// The launch of the L2-resident kernel.
#pragma once

#include <algorithm>

#include <cuda_runtime.h>

#include "../devices.cuh"
#include "../launch.cuh"
#include "../l2_shapes.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "l2.cuh"
#include "program.cuh"

namespace fusegen {

// The work of a program that has an L2-resident schedule.
template <class P>
constexpr ColumnWork l2_work() {
  ColumnWork work = column_work<P, 0>();
  work.resident = read_bytes<P>(P::kReadBy[0] & P::kReadBy[1]);
  return work;
}

// The launch for these sizes.
template <int kVec, bool kPacked, class P>
L2Shape l2_shape(const P& p, const LaunchContext& context) {
  return l2_shape(
      context.shapes, p.rows, p.channels, kVec, kPacked, l2_work<P>(), context.target.l2_bytes);
}

// counters: one for each tile, shape.tiles of them.
template <int kVec, class P>
cudaError_t launch_l2(
    const P& p, const L2Shape& shape, unsigned* counters, cudaStream_t stream) {
  const cudaError_t error = fill(counters, 0, shape.tiles, stream);
  if (error != cudaSuccess) return error;
  constexpr int kComponents = most_components<P, 0>();
  constexpr int kMoments = std::max(
      fields_in(moments_of_pass<P, 0>()), fields_in(moments_of_pass<P, 1>()));
  const size_t shared_bytes =
      kL2Warps * (kComponents * shape.block.x * kVec + kMoments) * sizeof(typename P::Acc);
  return launch_in_order(
      l2_kernel<P, kVec>, shape.grid, shape.block, shared_bytes, stream, p, counters, shape.tiles,
      shape.slices, shape.lag);
}

}  // namespace fusegen
