// The L2-resident schedule of a program: whether it runs in a call, and its launches.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "l2_launch.cuh"
#include "l2_reasons.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "schedules.cuh"

namespace fusegen {

template <class P, int kVec, bool kPacked>
bool ProgramRun<P, kVec, kPacked>::runs_l2(cudaError_t& error) {
  const L2Shape shape = l2_shape<kVec, kPacked>(p_, shapes_);
  if (explanation != nullptr) explain_l2<kVec, kPacked>(p_, shapes_, shape);
  if (shape.fits) error = l2(shape);
  return shape.fits;
}

template <class P, int kVec, bool kPacked>
cudaError_t ProgramRun<P, kVec, kPacked>::l2(const L2Shape& shape) {
  constexpr int kComponents =
      std::max(Totals<P, 0>::kComponents, Totals<P, kLast>::kComponents);
  auto* counters = scratch_.take<unsigned>(shape.tiles);
  const int64_t partials = int64_t(shape.slices) * kComponents * p_.channels;
  if (passes_.template take_workspace<P::kPasses>(partials)) return cudaSuccess;
  explain_next("l2", 0, kLast);
  cudaError_t error = launch_l2<kVec>(p_, shape, counters, stream_);
  if constexpr (kLeavesPartials<P, kLast>) {
    if (error != cudaSuccess) return error;
    explain_next("final_reduction", kLast, kLast);
    error = launch_final_reduction<kLast>(p_, int64_t(shape.slices), 0, 1, stream_);
  }
  return error != cudaSuccess ? error : passes_.reduce_channels();
}

}  // namespace fusegen
