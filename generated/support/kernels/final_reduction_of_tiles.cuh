// The final reduction of partial results of tile and plane kernels.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "../tile_shapes.cuh"
#include "final_reduction.cuh"
#include "program.cuh"

namespace fusegen {

// As final_reduction_kernel(), with a partial result of each block of tile_kernel() in y.
template <class P, int kPass>
__global__ void __launch_bounds__(kFinalReductionThreads) final_reduction_of_tiles_kernel(
    const __grid_constant__ P p, int64_t blocks, const __grid_constant__ ImageTiles tiles) {
  wait_for_earlier_kernels();
  const int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool active = column < p.channels;
  const Totals<P, kPass> total = collect_partials<P, kPass>(
      p, column, active, blocks, shared_memory<typename P::Acc>(),
      [&](int64_t block) { return tiles.rows_of_block(block); });
  if (threadIdx.y != 0 || !active) return;
  finish_channel<P, kPass>(p, column, total);
}

template <int kPass, class P>
cudaError_t launch_final_reduction_of_tiles(
    const P& p, const TileShape& tiles, cudaStream_t stream) {
  const int64_t blocks = tiles.grid.y;
  const FinalReductionShape shape = final_reduction_shape(p.channels, blocks);
  return launch(
      final_reduction_of_tiles_kernel<P, kPass>, shape.grid, shape.block,
      final_reduction_bytes<P>(), stream, p, blocks, tiles.tiles);
}

}  // namespace fusegen
