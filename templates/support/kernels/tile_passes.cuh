// Passes over memory that meet outer tensors, [batch, channels, positions].
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../plane_shapes.cuh"
#include "../tile_shapes.cuh"
#include "final_reduction.cuh"
#include "final_reduction_of_tiles.cuh"
#include "memory_passes.cuh"
#include "plane.cuh"
#include "pointwise.cuh"
#include "program.cuh"
#include "tile.cuh"
#include "tile_arrays.cuh"

namespace fusegen {

template <class P, int kVec, bool kPacked>
template <int kPass>
cudaError_t MemoryPasses<P, kVec, kPacked>::over_tiles() {
  const TileShape shape = tile_shape_of<kPass>();
  const bool aligned = kPacked || context_.vector_end > 0;
  if constexpr (kOnPlanes<P, kPass>) {
    explain_next("plane", kPass, kPass);
    return launch_plane<kPass, kVec>(p_, shape, aligned, context_.stream);
  } else {
    explain_next("tile", kPass, kPass);
    return launch_tile<kPass, kVec, kPacked>(p_, shape, aligned, context_.stream);
  }
}

template <class P, int kVec, bool kPacked>
template <int kPass>
cudaError_t MemoryPasses<P, kVec, kPacked>::finish_tiles() {
  explain_next("final_reduction", kPass, kPass);
  const TileShape shape = tile_shape_of<kPass>();
  if constexpr (Totals<P, kPass>::kComponents > Totals<P, kPass>::kFields) {
    return launch_final_reduction_of_tiles<kPass>(p_, shape, context_.stream);
  }
  return launch_final_reduction<kPass>(p_, int64_t(shape.grid.y), 0, 1, context_.stream);
}

template <class P, int kVec, bool kPacked>
template <int kPass>
int64_t MemoryPasses<P, kVec, kPacked>::tile_partials() const {
  return tile_shape_of<kPass>().grid.y;
}

template <class P, int kVec, bool kPacked>
template <int kPass>
int64_t MemoryPasses<P, kVec, kPacked>::tile_sample_partials() const {
  return tile_shape_of<kPass>().tiles.sample_blocks;
}

template <class P, int kVec, bool kPacked>
template <int kPass>
TileShape MemoryPasses<P, kVec, kPacked>::tile_shape_of() const {
  const Shapes& shapes = context_.shapes;
  const int multiprocessors = context_.target.multiprocessors;
  if constexpr (kOnPlanes<P, kPass>) {
    return plane_shape(shapes, p_.rows, p_.positions, p_.channels, kVec,
                       pointwise_work<P, kPass>(), multiprocessors);
  }
  const TileShape shape = tile_shape(
      shapes, p_.rows, p_.positions, p_.channels, kVec, int(kVec * sizeof(typename P::T)),
      kTileBytes<P, kPass>, pointwise_work<P, kPass>(), multiprocessors);
  if constexpr (!kSumsSamples<P, kPass>) return shape;
  return tile_shape_of_samples(shape, shapes, multiprocessors);
}

}  // namespace fusegen
