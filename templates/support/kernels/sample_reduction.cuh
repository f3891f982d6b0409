// The sample reduction: partial results of a pass by samples become one value for each channel of a
// sample, or for each group of its channels, and what follows from it for each channel.
//
// A block reduces those of blockDim.x neighbouring channels, or of one group: the threads of a
// value, which differ in y, load some each and merge them in a fixed order. Results are [samples,
// channels]: each channel of a group has its value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../samples.cuh"
#include "../shapes.cuh"
#include "final_reduction.cuh"
#include "program.cuh"

namespace fusegen {

template <class P, int kPass>
__global__ void __launch_bounds__(kFinalReductionThreads) sample_reduction_kernel(
    const __grid_constant__ P p, const __grid_constant__ SampleRows rows_of) {
  using Acc = typename P::Acc;
  constexpr int64_t kComponents = Totals<P, kPass>::kComponents;
  constexpr bool kByGroup = P::kUnit[kPass] == Unit::kSampleGroup;
  wait_for_earlier_kernels();
  const int64_t length = kByGroup ? p.group_length : 1;  // channels of a value
  const int64_t first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * length;
  const bool active = first < p.channels;
  const int64_t partials = rows_of.partials();
  for (int64_t sample = blockIdx.y; sample < p.samples; sample += gridDim.y) {
    const Acc* const from = p.partials + sample * partials * kComponents * p.channels + first;
    // The partial results of a row of the array follow each other, channel by channel.
    const auto part_of = [&](int64_t i) {
      const int64_t partial = kByGroup ? quotient(i, length) : i;
      return from + partial * kComponents * p.channels + (i - partial * length);
    };
    const auto elements_of = [&](int64_t i) { return rows_of(kByGroup ? quotient(i, length) : i); };
    const Totals<P, kPass> total = collect_partials<P, kPass>(
        p, active, partials * length, Acc(p.sample_rows * length), shared_memory<Acc>(), part_of,
        elements_of);
    for (int64_t c = threadIdx.y; active && c < length; c += blockDim.y) {
      const int64_t channel = first + c, at = sample * p.channels + channel;
      Known<P> k = known_of_channel<P, kPass, false>(p, channel);
      p.template sample_tensors<kPass>([&](auto, auto* pointer, bool present, auto field) {
        k.*field = load_value<Acc>(pointer, at, present);
      });
      p.derive_sample(k);
      store_results<typename P::Sample, kPass>(p, k, total, at);
    }
  }
}

// rows: of the partial results of each sample.
template <int kPass, class P>
cudaError_t launch_sample_reduction(const P& p, const SampleRows& rows, cudaStream_t stream) {
  constexpr bool kByGroup = P::kUnit[kPass] == Unit::kSampleGroup;
  const int64_t values = kByGroup ? p.groups : p.channels;
  const int64_t count = rows.partials() * (p.channels / values);  // partial results of a value
  dim3 block = final_reduction_shape(p.channels, count).block;
  if (kByGroup) block = dim3(1, kFinalReductionThreads);
  // No more threads than there are partial results, down to a warp.
  while (block.y > 1 && int64_t(block.y / 2) >= count && block.x * block.y > 32) block.y /= 2;
  const dim3 grid(
      unsigned(ceil_div(values, int64_t(block.x))), unsigned(std::min<int64_t>(p.samples, 65535)));
  return launch(
      sample_reduction_kernel<P, kPass>, grid, block, final_reduction_bytes<P>(), stream, p, rows);
}

}  // namespace fusegen
