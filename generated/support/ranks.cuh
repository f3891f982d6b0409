// Merges the statistics that several ranks have gathered, and moves the running ones.
//
// By Chan, Golub and LeVeque (1983), section 3, in the order of the ranks: all of them compute the
// same bits. Numbers of rows are exact in float up to 2^24 and round beyond.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "call.h"
#include "launch.cuh"
#include "math.cuh"
#include "ranks.h"
#include "types.cuh"

namespace fusegen {

template <typename Param, typename Acc>
__device__ __forceinline__ void move_statistic(void* running, int64_t c, Acc factor, Acc batch) {
  Param& kept = static_cast<Param*>(running)[c];
  kept = narrow<Param>((Acc(1) - factor) * widen(kept) + factor * batch);
}

template <typename Acc, typename Param>
__global__ void merge_statistics(RankMerge a, int64_t channels) {
  wait_for_earlier_kernels();
  const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  Acc count = 0, mean = 0, m2 = 0;
  const Acc* of_rank = static_cast<const Acc*>(a.gathered);
  for (int64_t rank = 0; rank < a.ranks; ++rank, of_rank += 2 * channels + 1) {
    const Acc rows = of_rank[2 * channels];
    if (rows == Acc(0)) continue;
    const Acc sum = count + rows;
    const Acc distance = of_rank[c] - mean;
    const Acc share = rows / sum;
    mean += distance * share;
    m2 += of_rank[channels + c] * rows + distance * distance * (count * share);
    count = sum;
  }
  static_cast<Acc*>(a.mean)[c] = mean;
  static_cast<Acc*>(a.variance)[c] = m2 / count;
  if (c == 0) *static_cast<Acc*>(a.count) = count;
  if (a.running_mean != nullptr) {
    const Acc batches = a.momentum < 0 ? Acc(*a.batches) : Acc(0);
    const Acc factor = average_factor(Acc(a.momentum), batches);
    move_statistic<Param>(a.running_mean, c, factor, mean);
    move_statistic<Param>(a.running_var, c, factor, m2 / (count - Acc(1)));
  }
  // For the average every thread reads the number: the caller has counted.
  if (c == 0 && a.batches != nullptr && a.momentum >= 0) ++*a.batches;
}

// P: the dtypes of a program, as T and Param.
template <class P>
cudaError_t launch_merge(const Call& call, const RankMerge& arguments) {
  using T = typename P::T;
  using Param = typename P::Param;
  constexpr int kThreads = 128;
  const dim3 grid(unsigned((call.channels + kThreads - 1) / kThreads));
  return launch(merge_statistics<Accumulate<T>, Param>, grid, dim3(kThreads), 0,
                static_cast<cudaStream_t>(call.stream), arguments, call.channels);
}

}  // namespace fusegen

// The launcher, as launchers.h declares it. Dtypes: a template over the element types of a program.
#define FUSEGEN_MERGE_LAUNCHER(symbol, Dtypes)                                              \
  extern "C" int symbol(const fusegen::Call* call, const fusegen::RankMerge* arguments) {    \
    return Modes::with(call->mode, [&](auto types) {                                         \
      return fusegen::launch_merge<typename decltype(types)::template Of<Dtypes>>(           \
          *call, *arguments);                                                                \
    });                                                                                      \
  }
