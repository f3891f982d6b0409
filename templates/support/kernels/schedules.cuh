// Runs a program: chooses a schedule by the sizes, and launches its kernels.
//
//   row        rows, or groups of channels, stay in registers from their sums to their results
//   column     tiles of columns stay in shared memory
//   l2         groups of columns stay in the L2
//   two-pass   any size: a pass over memory for each reduction, then one for the results
//   pointwise  the same where nothing is reduced before the results
//   tile       one of the last two where outer tensors are [batch, channels, positions]: with tile
//              and plane kernels
//
// Passes before P::kFirstResident reduce something else than the last ones; all schedules take them
// from memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "column_launch.cuh"
#include "final_reduction.cuh"
#include "l2_launch.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "reasons.cuh"
#include "row_launch.cuh"

namespace fusegen {

// One call of a program, with vectors of kVec elements; packed: all rows and groups begin with one.
// vector_end: elements of a tensor that vectors may move, where it is not packed.
template <class P, int kVec, bool kPacked>
class ProgramRun {
 public:
  ProgramRun(
      const P& program, const Shapes& shapes, int64_t vector_end, Scratch& scratch,
      cudaStream_t stream)
      : p_(program),
        shapes_(shapes),
        vector_end_(vector_end),
        scratch_(scratch),
        stream_(stream),
        passes_(p_, shapes_, vector_end, scratch, stream) {}

  cudaError_t operator()() {
    if constexpr (P::kOuterReads != 0 || P::kOuterWrites != 0) {
      if (p_.positions > 0) {
        if (explanation != nullptr) explain_tile();
        return two_pass();
      }
    }
    if constexpr (kResident && P::kUnit[kFirst] == Unit::kChannel) {
      const Column tile = column_tile<kFirst, kVec, kPacked>(p_, shapes_);
      if (explanation != nullptr) explain_column<kFirst, kVec, kPacked>(p_, shapes_, tile);
      if (tile.fits) return column(tile);
      if (shapes_.schedule == kPersistent) return cudaErrorInvalidConfiguration;
    } else if constexpr (kResident) {
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
      if (chosen) return row(fit);
      if constexpr (RowPasses<P, kFirst>::kHasShared) {
        if (held.threads > 0) return row_shared(held);
      }
      if (shapes_.schedule == kPersistent) return cudaErrorInvalidConfiguration;
    }
    if constexpr (P::kFitsL2) {
      const L2Shape shape = l2_shape<kVec, kPacked>(p_, shapes_);
      if (explanation != nullptr) explain_l2<kVec, kPacked>(p_, shapes_, shape);
      if (shape.fits) return l2(shape);
      if (shapes_.schedule == kL2) return cudaErrorInvalidConfiguration;
    }
    if (explanation != nullptr) explain_two_pass(p_);
    return two_pass();
  }

 private:
  static constexpr int kLast = P::kPasses - 1, kFirst = P::kFirstResident;
  static constexpr bool kResident = kFirst < kLast;

  // Whether the last pass has anything to do: not where all results are those of rows.
  static constexpr bool kHasLast =
      Results<P>::kFields > 0 || Totals<P, kLast>::kFields > 0;

  cudaError_t row(const RowLaunch& fit) {
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

  cudaError_t row_shared(const RowShared& held) {
    const int64_t partials = passes_.template partials_before<kFirst>();
    if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
    cudaError_t error = passes_.template reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    explain_next("row", kFirst, kLast);
    error = launch_row_shared<kFirst, kVec, kPacked>(p_, held, shapes_, vector_end_, stream_);
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

  cudaError_t column(const Column& tile) {
    const int64_t partials = passes_.template partials_before<kFirst>();
    if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
    cudaError_t error = passes_.template reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    explain_next("column", kFirst, kLast);
    error = launch_column<kFirst, kVec, kPacked>(p_, tile, stream_);
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

  cudaError_t l2(const L2Shape& shape) {
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

  cudaError_t two_pass() {
    const int64_t partials = passes_.template partials_before<P::kPasses>();
    if (passes_.template take_workspace<P::kPasses>(partials)) return cudaSuccess;
    cudaError_t error = passes_.template reduce_before<kLast>();
    if (error != cudaSuccess) return error;
    if constexpr (kHasLast) error = passes_.template over_memory<kLast>();
    if constexpr (kLeavesPartials<P, kLast>) {
      if (error != cudaSuccess) return error;
      error = passes_.template finish_partials<kLast>();
    }
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

  P p_;
  Shapes shapes_;
  int64_t vector_end_;
  Scratch& scratch_;
  cudaStream_t stream_;
  MemoryPasses<P, kVec, kPacked> passes_;
};

}  // namespace fusegen
