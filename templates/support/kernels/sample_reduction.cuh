// The sample reduction: partial results of the sums of samples of the last pass become one row of
// channels for each sample, p.sample_results().
//
// `blocks` partial results of a sample follow each other in p.partials. A block of the grid reduces
// those of blockDim.x neighbouring columns of a sample: the threads of a column, which differ in y,
// load some each and add them up in a fixed order.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../reduce_columns.cuh"
#include "../shapes.cuh"
#include "final_reduction.cuh"
#include "program.cuh"

namespace fusegen {

template <class P>
__global__ void __launch_bounds__(kFinalReductionThreads) sample_reduction_kernel(
    const __grid_constant__ P p, int64_t blocks) {
  using Acc = typename P::Acc;
  constexpr int kComponents = Totals<P, P::kPasses - 1>::kComponents;
  constexpr int kBatch = 4;  // partial results that a thread loads before it uses the first
  wait_for_earlier_kernels();
  const int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool active = column < p.channels;
  for (int64_t sample = blockIdx.y; sample < p.samples; sample += gridDim.y) {
    p.sample_results([&](auto component, auto* to) {
      if (to == nullptr) return;
      const Acc* const from = p.partials +
          (sample * blocks * kComponents + decltype(component)::value) * p.channels + column;
      Acc sum = Acc(0);
      for (int64_t base = threadIdx.y; active && base < blocks; base += kBatch * blockDim.y) {
        Acc part[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const int64_t block = base + b * blockDim.y;
          part[b] = block < blocks ? from[block * kComponents * p.channels] : Acc(0);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) sum += part[b];
      }
      const Acc total = total_over_y(shared_memory<Acc>(), sum, Acc(0), Acc(0));
      if (threadIdx.y == 0 && active) store_value(to + sample * p.channels + column, total);
    });
  }
}

// blocks: how many partial results a column of a sample has.
template <class P>
cudaError_t launch_sample_reduction(const P& p, int64_t blocks, cudaStream_t stream) {
  FinalReductionShape shape = final_reduction_shape(p.channels, blocks);
  // No more threads than there are partial results, down to a warp.
  while (shape.block.y > 1 && int64_t(shape.block.y / 2) >= blocks &&
         shape.block.x * shape.block.y > 32) {
    shape.block.y /= 2;
  }
  shape.grid.y = unsigned(std::min<int64_t>(p.samples, 65535));
  return launch(
      sample_reduction_kernel<P>, shape.grid, shape.block, final_reduction_bytes<P>(), stream, p,
      blocks);
}

}  // namespace fusegen
