// The scalar reduction: values of each channel in memory are summed to single values, and what
// follows from these is stored. A program has it if P::kReducesChannels is true; it counts as one
// more pass after the passes over the elements, number P::kPasses. There is one block, as channels
// are few.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../reduce_lanes.cuh"
#include "program.cuh"

namespace fusegen {

constexpr int kScalarReductionThreads = 1024;

template <class P>
__global__ void __launch_bounds__(kScalarReductionThreads) scalar_reduction_kernel(
    const __grid_constant__ P p) {
  using Acc = typename P::Acc;
  using Sums = Totals<P, P::kPasses>;
  static_assert(Sums::kComponents == Sums::kFields, "moments are not reduced over channels");
  wait_for_earlier_kernels();
  Acc* const shared = shared_memory<Acc>();
  Known<P> k{p.scalars(), {}, {}, {}};
  Sums total = {};
  for (int64_t column = threadIdx.x; column < p.channels; column += blockDim.x) {
    p.template channel_tensors<P::kPasses>([&](auto uses, auto* pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, P::kPasses)) {
        k.*field = present ? Acc(widen(read_at(pointer, column))) : Acc(0);
      }
    });
    p.derive_channel(k);
    Terms<P, P::kPasses> term;
    p.channel_terms(k, term);
    each([&](auto, Acc& sum, Acc one) { sum += one; }, total, term);
  }
  each([&](auto, Acc& sum) { sum_over_block(shared, sum); }, total);
  if (threadIdx.x != 0) return;
  p.template follow<P::kPasses>(k, total);
  p.template finish<P::kPasses>(k, total);
  p.template results<P::kPasses, true>([&](auto* pointer, auto field) {
    if (pointer != nullptr) store_value(pointer, k.*field);
  });
}

template <class P>
cudaError_t launch_scalar_reduction(const P& p, cudaStream_t stream) {
  return launch(
      scalar_reduction_kernel<P>, dim3(1), dim3(kScalarReductionThreads),
      32 * sizeof(typename P::Acc), stream, p);
}

}  // namespace fusegen
