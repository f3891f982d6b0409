// The column schedule of a program: whether it runs in a call, and its launch.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "column_launch.cuh"
#include "column_reasons.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "schedules.cuh"

namespace fusegen {

template <class P, int kVec, bool kPacked>
bool ProgramRun<P, kVec, kPacked>::runs_column(cudaError_t& error) {
  const Column tile = column_tile<kFirst, kVec, kPacked>(p_, shapes_);
  if (explanation != nullptr) explain_column<kFirst, kVec, kPacked>(p_, shapes_, tile);
  if (tile.fits) error = column(tile);
  return tile.fits;
}

template <class P, int kVec, bool kPacked>
cudaError_t ProgramRun<P, kVec, kPacked>::column(const Column& tile) {
  const int64_t partials = passes_.template partials_before<kFirst>();
  if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
  cudaError_t error = passes_.template reduce_before<kFirst>();
  if (error != cudaSuccess) return error;
  explain_next("column", kFirst, kLast);
  error = launch_column<kFirst, kVec, kPacked>(p_, tile, stream_);
  return error != cudaSuccess ? error : passes_.reduce_channels();
}

}  // namespace fusegen
