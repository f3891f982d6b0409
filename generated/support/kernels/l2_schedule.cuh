// The L2-resident schedule of a program.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../shapes.cuh"
#include "l2_launch.cuh"
#include "l2_reasons.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "schedule_list.cuh"

namespace fusegen {

// Tiles of columns in the L2.
template <class P, int kVec, bool kPacked>
class L2Schedule {
 public:
  static constexpr const char* kName = "l2";
  static constexpr int64_t kForced = kL2, kPreferred = kL2IfItFits;

  explicit L2Schedule(MemoryPasses<P, kVec, kPacked>& passes)
      : passes_(passes),
        shape_(l2_shape<kVec, kPacked>(passes.program(), passes.context())) {}

  bool eligible() const { return shape_.fits; }
  bool pays() const { return shape_.fits && shape_.stays; }
  double cost() const {
    const P& p = passes_.program();
    return l2_microseconds(p.rows, p.channels, l2_work<P>());
  }
  const char* reason(bool chosen, char*) const { return reason_of_l2(pays(), chosen); }

  cudaError_t launch() {
    constexpr int kLast = P::kPasses - 1;
    constexpr int kComponents =
        std::max(Totals<P, 0>::kComponents, Totals<P, kLast>::kComponents);
    const P& p = passes_.program();
    auto* counters = passes_.scratch().template take<unsigned>(shape_.tiles);
    const int64_t partials = int64_t(shape_.slices) * kComponents * p.channels;
    if (passes_.template take_workspace<P::kPasses>(partials)) return cudaSuccess;
    const cudaStream_t stream = passes_.context().stream;
    explain_next("l2", 0, kLast);
    cudaError_t error = launch_l2<kVec>(p, shape_, counters, stream);
    if constexpr (kLeavesPartials<P, kLast>) {
      if (error != cudaSuccess) return error;
      explain_next("final_reduction", kLast, kLast);
      error = launch_final_reduction<kLast>(p, int64_t(shape_.slices), 0, 1, stream);
    }
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

 private:
  MemoryPasses<P, kVec, kPacked>& passes_;
  L2Shape shape_;
};

}  // namespace fusegen
