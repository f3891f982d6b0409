// No program of this chain reduces rows from memory: names alone.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../shapes.cuh"
#include "program.cuh"

namespace fusegen {

template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_row_reduction(
    const P& p, const Shapes& shapes, int64_t vector_end, cudaStream_t stream);

}  // namespace fusegen
