// The final reduction of partial results of uneven numbers of rows: those of tile and plane
// kernels, and of passes by samples.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "final_reduction.cuh"
#include "program.cuh"

namespace fusegen {

// As final_reduction_kernel(), with `blocks` partial results of a column. rows_of(block): the rows
// of one.
template <class P, int kPass, class RowsOf>
__global__ void __launch_bounds__(kFinalReductionThreads) final_reduction_of_parts_kernel(
    const __grid_constant__ P p, int64_t blocks, const __grid_constant__ RowsOf rows_of) {
  wait_for_earlier_kernels();
  const int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool active = column < p.channels;
  const Totals<P, kPass> total = collect_column<P, kPass>(
      p, column, active, blocks, shared_memory<typename P::Acc>(), rows_of);
  if (threadIdx.y != 0 || !active) return;
  finish_channel<P, kPass>(p, column, total);
}

// Only moments need the rows.
template <int kPass, class P, class RowsOf>
cudaError_t launch_final_reduction_of_parts(
    const P& p, int64_t blocks, const RowsOf& rows_of, cudaStream_t stream) {
  if constexpr (Totals<P, kPass>::kComponents == Totals<P, kPass>::kFields) {
    return launch_final_reduction<kPass>(p, blocks, 0, 1, stream);
  } else {
    const FinalReductionShape shape = final_reduction_shape(p.channels, blocks);
    return launch(
        final_reduction_of_parts_kernel<P, kPass, RowsOf>, shape.grid, shape.block,
        final_reduction_bytes<P>(), stream, p, blocks, rows_of);
  }
}

}  // namespace fusegen
