// The column schedule of a program.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../shapes.cuh"
#include "column_launch.cuh"
#include "column_reasons.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "schedule_list.cuh"

namespace fusegen {

// Tiles of columns in shared memory.
template <class P, int kVec, bool kPacked>
class ColumnSchedule {
 public:
  static constexpr const char* kName = "column";
  static constexpr int64_t kForced = kPersistent, kPreferred = kPersistentIfItFits;

  explicit ColumnSchedule(MemoryPasses<P, kVec, kPacked>& passes)
      : passes_(passes),
        tile_(column_tile<kFirst, kVec, kPacked>(passes.program(), passes.context())) {}

  bool eligible() const { return tile_.fits; }
  bool pays() const { return tile_.fits; }
  double cost() const { return tile_.microseconds; }
  const char* reason(bool chosen, char*) const { return reason_of_column(tile_, chosen); }

  cudaError_t launch() {
    const int64_t partials = passes_.template partials_before<kFirst>();
    if (passes_.template take_workspace<kFirst>(partials)) return cudaSuccess;
    cudaError_t error = passes_.template reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    explain_next("column", kFirst, P::kPasses - 1);
    error = launch_column<kFirst, kVec, kPacked>(
        passes_.program(), tile_, passes_.context().stream);
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

 private:
  static constexpr int kFirst = P::kFirstResident;

  MemoryPasses<P, kVec, kPacked>& passes_;
  Column tile_;
};

}  // namespace fusegen
