// The mean of the losses of rows, of those that count, or by the weights of their targets: one
// block, as rows have one value each.
//
// PyTorch's operators for that are a handful of kernels, each of which takes longer to launch than
// to run. Sums are in a fixed order, which the number of rows alone decides.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../call.h"
#include "../launch.cuh"
#include "../mean_loss.h"
#include "../packs.cuh"
#include "../reduce_lanes.cuh"
#include "../types.cuh"

namespace fusegen {

constexpr int kMeanLossThreads = 1024;
constexpr int kMeanLossBatch = 4;  // rows that a thread loads before it uses the first

template <typename Out>
__global__ void __launch_bounds__(kMeanLossThreads) mean_loss_kernel(
    const __grid_constant__ MeanLoss a) {
  using Acc = Accumulate<Out>;
  wait_for_earlier_kernels();
  const Out* const losses = static_cast<const Out*>(a.losses);
  const Acc* const weights = static_cast<const Acc*>(a.weights);
  Acc sum = 0, count = 0;  // float counts exactly up to 2^24
  for (int64_t first = threadIdx.x; first < a.rows; first += kMeanLossBatch * kMeanLossThreads) {
    Out loss[kMeanLossBatch];
    int64_t target[kMeanLossBatch];
#pragma unroll
    for (int i = 0; i < kMeanLossBatch; ++i) {
      const int64_t row = first + i * kMeanLossThreads;
      if (row >= a.rows) break;
      loss[i] = read(losses + row);
      target[i] = read(a.targets + row);
    }
#pragma unroll
    for (int i = 0; i < kMeanLossBatch; ++i) {
      if (first + i * kMeanLossThreads >= a.rows) break;
      sum += widen(loss[i]);  // 0 where the row does not count
      if (target[i] == a.ignored) continue;
      const bool is_channel = target[i] >= 0 && target[i] < a.channels;  // else the loss is NaN
      count += weights == nullptr ? Acc(1) : is_channel ? read(weights + target[i]) : Acc(0);
    }
  }
  sum_over_block(shared_memory<Acc>(), sum, count);
  if (threadIdx.x != 0) return;
  *static_cast<Out*>(a.mean) = narrow<Out>(sum / count);
  *static_cast<Acc*>(a.count) = count;
}

// P: the dtypes of a program, with that of results as Out.
template <class P>
cudaError_t launch_mean_loss(const Call& call, const MeanLoss& a) {
  using Out = typename P::Out;
  return launch(
      mean_loss_kernel<Out>, dim3(1), dim3(kMeanLossThreads), 2 * 32 * sizeof(Accumulate<Out>),
      static_cast<cudaStream_t>(call.stream), a);
}

}  // namespace fusegen

// The launcher, as launchers.h declares it. Dtypes: a template over the element types of a program.
#define FUSEGEN_MEAN_LOSS_LAUNCHER(symbol, Dtypes)                                            \
  extern "C" int symbol(const fusegen::Call* call, const fusegen::MeanLoss* arguments) {      \
    return Modes::with(call->mode, [&](auto types) {                                          \
      return fusegen::launch_mean_loss<typename decltype(types)::template Of<Dtypes>>(        \
          *call, *arguments);                                                                 \
    });                                                                                       \
  }
