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

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "reasons.cuh"

namespace fusegen {

struct Column;
struct L2Shape;
struct RowLaunch;
struct RowShared;

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
    cudaError_t error = cudaSuccess;
    if constexpr (kResident) {
      constexpr bool kOfColumns = P::kUnit[kFirst] == Unit::kChannel;
      if constexpr (kOfColumns) {
        if (runs_column(error)) return error;
      } else {
        if (runs_row(error)) return error;
      }
      if (shapes_.schedule == kPersistent) return cudaErrorInvalidConfiguration;
    }
    if constexpr (P::kFitsL2) {
      if (runs_l2(error)) return error;
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

  // Whether a schedule is chosen, and then the error of its launches: in headers of their own,
  // which kernels.cu includes where its programs have the schedule.
  bool runs_row(cudaError_t& error);     // row_schedule.cuh
  bool runs_column(cudaError_t& error);  // column_schedule.cuh
  bool runs_l2(cudaError_t& error);      // l2_schedule.cuh
  cudaError_t row(const RowLaunch& fit);
  cudaError_t row_shared(const RowShared& held);
  cudaError_t column(const Column& tile);
  cudaError_t l2(const L2Shape& shape);

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
