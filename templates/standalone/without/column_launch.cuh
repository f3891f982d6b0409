// No program of this chain keeps tiles of columns in shared memory: names alone.
#pragma once

#include <cuda_runtime.h>

#include "../shapes.cuh"
#include "program.cuh"

namespace fusegen {

struct Column {
  dim3 grid, block;
  bool fits;
};
template <int kFirst, int kVec, bool kPacked, class P>
Column column_tile(const P& p, const Shapes& shapes);
template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_column(const P& p, const Column& tile, cudaStream_t stream);

}  // namespace fusegen
