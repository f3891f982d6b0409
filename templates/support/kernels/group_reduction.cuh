// The group reduction: partial results of a pass by samples become one value for each group of the
// channels of a sample, and what follows from it for each of these channels, [samples, channels].
//
// A block has a group of a sample. Its threads, which differ in y, load some partial results of its
// channels each, and merge them in a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../samples.cuh"
#include "../shapes.cuh"
#include "final_reduction.cuh"
#include "program.cuh"

namespace fusegen {

template <class P, int kPass>
__global__ void __launch_bounds__(kFinalReductionThreads) group_reduction_kernel(
    const __grid_constant__ P p, const __grid_constant__ SampleRows rows_of) {
  using Acc = typename P::Acc;
  constexpr int kComponents = Totals<P, kPass>::kComponents;
  constexpr bool kHasMoments = kComponents > Totals<P, kPass>::kFields;
  wait_for_earlier_kernels();
  const int64_t sample = blockIdx.x / p.groups, group = blockIdx.x - sample * p.groups;
  const int64_t channel = group * p.group_length, partials = rows_of.partials();
  const Acc* const from = p.partials + sample * partials * kComponents * p.channels + channel;

  Running<P, kPass> sums = {};
  Acc seen = Acc(0);  // elements so far
  for (int64_t i = threadIdx.y; i < partials * p.group_length; i += blockDim.y) {
    const int64_t partial = quotient(i, p.group_length), column = i - partial * p.group_length;
    Acc part[kComponents];
#pragma unroll
    for (int c = 0; c < kComponents; ++c) {
      part[c] = from[(partial * kComponents + c) * p.channels + column];
    }
    const Acc count = kHasMoments ? Acc(rows_of(partial)) : Acc(1);
    if (count == Acc(0)) continue;
    const Acc* next = part;
    each([&](auto, auto& sum) { add_partial(sum, next, seen == Acc(0), count); }, sums);
    seen += count;
  }
  Totals<P, kPass> total;
  each(
      [&](auto, auto& all, const auto& sum) {
        all = total_over_y(shared_memory<Acc>(), sum, seen, Acc(p.sample_length));
      },
      total, sums);

  for (int64_t c = threadIdx.y; c < p.group_length; c += blockDim.y) {
    Known<P> k{p.scalars(), {}, {}, {}};
    p.template channel_tensors<kPass>([&](auto, auto* pointer, bool present, auto field) {
      k.*field = present ? Acc(widen(read_at(pointer, channel + c))) : Acc(0);
    });
    const int64_t at = sample * p.channels + channel + c;
    p.template sample_tensors<kPass>([&](auto, auto* pointer, bool present, auto field) {
      k.*field = load_value<Acc>(pointer, at, present);
    });
    p.derive_channel(k);
    p.derive_sample(k);
    p.template follow<kPass>(k, total);
    p.template finish<kPass>(k, total);
    p.template results<kPass, false>([&](auto* pointer, auto field) {
      if (pointer != nullptr) store_value(pointer + at, k.*field);
    });
  }
}

// rows: of the partial results of each sample.
template <int kPass, class P>
cudaError_t launch_group_reduction(const P& p, const SampleRows& rows, cudaStream_t stream) {
  const int64_t count = rows.partials() * p.group_length;
  int threads = 32;  // as few as have work, down to a warp
  while (threads < kFinalReductionThreads && threads < count) threads *= 2;
  return launch(
      group_reduction_kernel<P, kPass>, dim3(unsigned(p.samples * p.groups)),
      dim3(1, unsigned(threads)), final_reduction_bytes<P>(), stream, p, rows);
}

}  // namespace fusegen
