// The row schedule of a program.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../shapes.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "row_launch.cuh"
#include "row_reasons.cuh"
#include "row_shared_launch.cuh"
#include "schedule_list.cuh"

namespace fusegen {

// Rows or groups in registers; rows that do not fit these, in shared memory.
template <class P, int kVec, bool kPacked>
class RowSchedule {
 public:
  static constexpr const char* kName = "row";
  static constexpr int64_t kForced = kPersistent, kPreferred = kPersistentIfItFits;

  explicit RowSchedule(MemoryPasses<P, kVec, kPacked>& passes)
      : passes_(passes), registers_(row_fit<kFirst, kVec, kPacked>(program(), context())) {
    if constexpr (kHasShared) {
      if (!in_registers()) shared_ = row_shared_fit<kFirst, kVec, kPacked>(program(), context());
    }
  }

  bool eligible() const { return in_registers() || shared_.threads > 0; }
  bool pays() const { return eligible(); }

  // Elements are read once: faster, but for some segments.
  double cost() const {
    return in_registers() && registers_.second_read_pays ? kAlwaysSlower : kAlwaysFaster;
  }
  const char* reason(bool chosen, char* text) const {
    return reason_of_row<P, kFirst>(program(), registers_, shared_, text);
  }

  cudaError_t launch() {
    if constexpr (kHasShared) {
      if (!in_registers()) return launch_in_shared();
    }
    return launch_in_registers();
  }

 private:
  static constexpr int kFirst = P::kFirstResident, kLast = P::kPasses - 1;
  static constexpr bool kHasShared = RowPasses<P, kFirst>::kHasShared;

  const P& program() const { return passes_.program(); }
  const LaunchContext& context() const { return passes_.context(); }
  bool in_registers() const { return registers_.items > 0; }

  cudaError_t launch_in_registers() {
    constexpr bool kSums = kLeavesPartials<P, kLast>;
    const P& p = program();
    const int64_t blocks = kSumsSamples<P, kLast> ? p.samples * registers_.sample_blocks
                                                  : int64_t(registers_.grid.y);
    const int64_t own = kSums ? blocks * Totals<P, kLast>::kComponents * p.channels : 0;
    const int64_t partials = std::max(own, passes_.template partials_before<kFirst>());
    if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
    cudaError_t error = passes_.template reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    explain_next("row", kFirst, kLast);
    error = launch_row<kFirst, kVec, kPacked>(p, registers_, context());
    if constexpr (kSums) {
      if (error != cudaSuccess) return error;
      if constexpr (kSumsSamples<P, kLast>) {
        // No moments: kernels of rows leave none.
        error = passes_.template finish_samples<kLast>({registers_.sample_blocks, 0, 0, 1});
      } else {
        explain_next("final_reduction", kLast, kLast);
        error = launch_final_reduction<kLast>(p, blocks, 0, 1, context().stream);
      }
    }
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

  cudaError_t launch_in_shared() {
    const int64_t partials = passes_.template partials_before<kFirst>();
    if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
    cudaError_t error = passes_.template reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    explain_next("row", kFirst, kLast);
    error = launch_row_shared<kFirst, kVec, kPacked>(program(), shared_, context());
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

  MemoryPasses<P, kVec, kPacked>& passes_;
  RowLaunch registers_;
  RowShared shared_{};
};

}  // namespace fusegen
