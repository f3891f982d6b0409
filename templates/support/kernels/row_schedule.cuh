// The row schedule of a program: whether it runs in a call, and its launches.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "row_launch.cuh"
#include "row_reasons.cuh"
#include "schedules.cuh"

namespace fusegen {

template <class P, int kVec, bool kPacked>
bool ProgramRun<P, kVec, kPacked>::runs_row(cudaError_t& error) {
  const RowLaunch fit = row_fit<kFirst, kVec, kPacked>(p_, shapes_);
  const bool chosen = fit.items > 0 && shapes_.schedule != kTwoPass;
  RowShared held{};
  if constexpr (RowPasses<P, kFirst>::kHasShared) {
    const bool may = !chosen && shapes_.schedule != kTwoPass;
    if (may && !row_fits_registers<kFirst, kVec, kPacked>(p_, shapes_)) {
      held = row_shared_fit<kFirst, kVec, kPacked>(p_);
    }
  }
  if (explanation != nullptr) {
    explain_row<kFirst, kVec, kPacked>(p_, shapes_, fit, chosen, held);
  }
  if (chosen) {
    error = row(fit);
    return true;
  }
  if constexpr (RowPasses<P, kFirst>::kHasShared) {
    if (held.threads > 0) {
      error = row_shared(held);
      return true;
    }
  }
  return false;
}

template <class P, int kVec, bool kPacked>
cudaError_t ProgramRun<P, kVec, kPacked>::row(const RowLaunch& fit) {
  constexpr bool kSums = kLeavesPartials<P, kLast>;
  const int64_t blocks =
      kSumsSamples<P, kLast> ? p_.samples * fit.sample_blocks : int64_t(fit.grid.y);
  const int64_t own = kSums ? blocks * Totals<P, kLast>::kComponents * p_.channels : 0;
  const int64_t partials = std::max(own, passes_.template partials_before<kFirst>());
  if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
  cudaError_t error = passes_.template reduce_before<kFirst>();
  if (error != cudaSuccess) return error;
  explain_next("row", kFirst, kLast);
  error = launch_row<kFirst, kVec, kPacked>(p_, fit, shapes_, vector_end_, stream_);
  if constexpr (kSums) {
    if (error != cudaSuccess) return error;
    if constexpr (kSumsSamples<P, kLast>) {
      error = passes_.finish_samples(fit.sample_blocks);
    } else {
      explain_next("final_reduction", kLast, kLast);
      error = launch_final_reduction<kLast>(p_, blocks, 0, 1, stream_);
    }
  }
  return error != cudaSuccess ? error : passes_.reduce_channels();
}

template <class P, int kVec, bool kPacked>
cudaError_t ProgramRun<P, kVec, kPacked>::row_shared(const RowShared& held) {
  const int64_t partials = passes_.template partials_before<kFirst>();
  if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
  cudaError_t error = passes_.template reduce_before<kFirst>();
  if (error != cudaSuccess) return error;
  explain_next("row", kFirst, kLast);
  error = launch_row_shared<kFirst, kVec, kPacked>(p_, held, shapes_, vector_end_, stream_);
  return error != cudaSuccess ? error : passes_.reduce_channels();
}

}  // namespace fusegen
