// The schedules that take every pass from memory: they fit every size.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../column_work.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "schedule_list.cuh"

namespace fusegen {

// What they share.
template <class P, int kVec, bool kPacked>
class ScheduleFromMemory {
 public:
  static constexpr int64_t kForced = kTwoPass, kPreferred = kTwoPass;

  explicit ScheduleFromMemory(MemoryPasses<P, kVec, kPacked>& passes) : passes_(passes) {}

  bool eligible() const { return true; }
  bool pays() const { return true; }
  double cost() const { return kAlwaysSlower; }

  cudaError_t launch() {
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

 protected:
  MemoryPasses<P, kVec, kPacked>& passes_;

 private:
  static constexpr int kLast = P::kPasses - 1;

  // Whether the last pass has anything to do: not where all results are those of rows.
  static constexpr bool kHasLast = Results<P>::kFields > 0 || Totals<P, kLast>::kFields > 0;
};

// A pass for each reduction, then one for the results.
template <class P, int kVec, bool kPacked>
class TwoPassSchedule : public ScheduleFromMemory<P, kVec, kPacked> {
 public:
  static constexpr const char* kName = "two_pass";
  using ScheduleFromMemory<P, kVec, kPacked>::ScheduleFromMemory;

  // Beside that of others for columns; no others have estimates.
  double cost() const {
    if constexpr (!kOfColumns) return kAlwaysSlower;
    const P& p = this->passes_.program();
    return two_pass_microseconds(p.rows, p.channels, column_work<P, P::kFirstResident>());
  }
  const char* reason(bool chosen, char* text) const;  // reasons.cuh

 private:
  static constexpr bool kOfColumns = P::kUnit[P::kFirstResident] == Unit::kChannel;
};

// Where nothing is reduced before the results.
template <class P, int kVec, bool kPacked>
class PointwiseSchedule : public ScheduleFromMemory<P, kVec, kPacked> {
 public:
  static constexpr const char* kName = "pointwise";
  using ScheduleFromMemory<P, kVec, kPacked>::ScheduleFromMemory;
  const char* reason(bool chosen, char* text) const;
};

// Where outer tensors are [batch, channels, positions], which no other schedule reads.
template <class P, int kVec, bool kPacked>
class TileSchedule : public ScheduleFromMemory<P, kVec, kPacked> {
 public:
  static constexpr const char* kName = "tile";
  using ScheduleFromMemory<P, kVec, kPacked>::ScheduleFromMemory;
  const char* reason(bool chosen, char* text) const;
};

}  // namespace fusegen
