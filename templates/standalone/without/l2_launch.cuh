// No program of this chain keeps columns in the L2: names alone.
#pragma once

#include <cuda_runtime.h>

#include "../l2_shapes.cuh"
#include "program.cuh"

namespace fusegen {

template <int kVec, bool kPacked, class P>
L2Shape l2_shape(const P& p, const Shapes& shapes);
template <int kVec, class P>
cudaError_t launch_l2(const P& p, const L2Shape& shape, unsigned* counters, cudaStream_t stream);

}  // namespace fusegen
