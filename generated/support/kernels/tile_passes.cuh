// Passes over memory that meet outer tensors, [batch, channels, positions].
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../plane_shapes.cuh"
#include "../tile_shapes.cuh"
#include "final_reduction.cuh"
#include "final_reduction_of_parts.cuh"
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
  return launch_final_reduction_of_parts<kPass>(
      p_, shape.grid.y, RowsOfTiles{shape.tiles}, context_.stream);
}

template <class P, int kVec, bool kPacked>
template <int kPass>
int64_t MemoryPasses<P, kVec, kPacked>::tile_partials() const {
  return tile_shape_of<kPass>().grid.y;
}

template <class P, int kVec, bool kPacked>
template <int kPass>
SampleRows MemoryPasses<P, kVec, kPacked>::tile_sample_rows() const {
  return tile_shape_of<kPass>().tiles.sample_rows();
}

template <class P, int kVec, bool kPacked>
template <int kPass>
TileShape MemoryPasses<P, kVec, kPacked>::tile_shape_of() const {
  const Shapes& shapes = context_.shapes;
  const int multiprocessors = context_.target.multiprocessors;
  constexpr bool kPlanes = kOnPlanes<P, kPass>;
  TileShape shape;
  if constexpr (kPlanes) {
    shape = plane_shape(shapes, p_.rows, p_.positions, p_.channels, kVec,
                        pointwise_work<P, kPass>(), multiprocessors);
  } else {
    shape = tile_shape(
        shapes, p_.rows, p_.positions, p_.channels, kVec, int(kVec * sizeof(typename P::T)),
        kTileBytes<P, kPass>, pointwise_work<P, kPass>(), multiprocessors);
  }
  if constexpr (!kBySamples<P, kPass>) return shape;
  return tile_shape_of_samples(shape, shapes, kPlanes ? kPlaneVectors : 1, multiprocessors);
}

}  // namespace fusegen
