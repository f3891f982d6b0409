// The schedule of programs whose planes stay in shared memory.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../plane_shapes.cuh"
#include "../samples.cuh"
#include "memory_passes.cuh"
#include "plane_shared.cuh"
#include "program.cuh"
#include "schedule_list.cuh"

namespace fusegen {

// Groups of planes in shared memory, where outer tensors are [batch, channels, positions].
template <class P, int kVec, bool kPacked>
class PlaneSharedSchedule {
 public:
  static constexpr const char* kName = "plane_shared";
  static constexpr int64_t kForced = kPersistent, kPreferred = kPersistentIfItFits;

  explicit PlaneSharedSchedule(MemoryPasses<P, kVec, kPacked>& passes)
      : passes_(passes), shape_(shape_of(passes)) {}

  bool eligible() const { return shape_.fits; }
  bool pays() const { return shape_.pays; }
  double cost() const { return kAlwaysFaster; }
  const char* reason(bool chosen, char*) const {
    if (chosen) return "the memory is read once";
    return shape_.fits ? "most threads would be idle"
                       : "planes have no whole vectors, or do not fit in shared memory";
  }

  cudaError_t launch() {
    constexpr int kLast = P::kPasses - 1;
    const P& p = passes_.program();
    const int64_t partials = p.samples * Totals<P, kLast>::kComponents * p.channels;
    constexpr int kStored = PlaneSharedThread<P, kVec>::kStores ? kLast : 0;
    if (passes_.template take_workspace<kStored>(partials)) return cudaSuccess;
    explain_next(kName, 0, kLast);
    cudaError_t error = fusegen::launch(
        plane_shared_kernel<P, kVec>, shape_.grid, shape_.block, size_t(shape_.bytes),
        passes_.context().stream, p, shape_.warps, shape_.slots,
        kPacked || passes_.context().vector_end > 0);
    if constexpr (kLeavesPartials<P, kLast>) {
      if (error != cudaSuccess) return error;
      error = passes_.template finish_samples<kLast>({1, p.positions, p.positions, 1});
    }
    return error != cudaSuccess ? error : passes_.reduce_channels();
  }

 private:
  static PlaneSharedShape shape_of(MemoryPasses<P, kVec, kPacked>& passes) {
    const P& p = passes.program();
    using Thread = PlaneSharedThread<P, kVec>;
    return plane_shared_shape(
        p.samples, p.positions, p.channels, reduces_groups<P>() ? p.group_length : 1, kVec,
        read_bytes<P>(P::kAllReads), Thread::kExchanged * sizeof(typename P::Acc),
        passes.context().target.shared_bytes);
  }

  MemoryPasses<P, kVec, kPacked>& passes_;
  PlaneSharedShape shape_;
};

}  // namespace fusegen
