// The tile of the column kernel for a program and its sizes, and the launch.
#pragma once

#include <cuda_runtime.h>

#include "../column_shapes.cuh"
#include "../devices.cuh"
#include "../launch.cuh"
#include "../shapes.cuh"
#include "column.cuh"
#include "column_layout.cuh"
#include "program.cuh"

namespace fusegen {

// Columns per thread: kVec where rows begin at multiples of a vector.
template <int kVec, bool kPacked>
constexpr int kColumnsOfThread = kPacked ? kVec : kStridedColumns;

// The tile for these sizes.
template <int kFirst, int kVec, bool kPacked, class P>
Column column_tile(const P& p, const LaunchContext& context) {
  constexpr ColumnWork kWork = column_work<P, kFirst>();
  return column_shape(
      context.shapes, p.rows, p.channels, kColumnsOfThread<kVec, kPacked>, kPacked, kWork,
      context.target);
}

template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_column(const P& p, const Column& tile, cudaStream_t stream) {
  return launch(
      column_kernel<P, kFirst, kColumnsOfThread<kVec, kPacked>, kPacked>, tile.grid, tile.block,
      tile.shared_bytes, stream, p, tile.rows_per_block);
}

}  // namespace fusegen
