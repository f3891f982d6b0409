// The final reduction: partial results of the column sums of a pass become one value a channel, and
// what follows from it.
//
// The blocks of an earlier kernel have stored partial results in p.partials, an array of the
// channels for each block and component. A block reduces those of blockDim.x neighbouring columns:
// the threads of a column, which differ in y, load some each and merge them in a fixed order. The
// thread with y = 0 then stores what the pass stores of its channel.
//
// The L2-resident kernel has the same two steps, collect_column() and finish_channel(), within.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../reduce_columns.cuh"
#include "../shapes.cuh"
#include "program.cuh"

namespace fusegen {

constexpr int kFinalReductionThreads = 256;

// Adds a partial result, of `count` values, and moves `part` to what follows its components. first:
// nothing has been added so far.
template <typename Acc>
__device__ __forceinline__ void add_partial(Acc& sum, const Acc*& part, bool, Acc) {
  sum += part[0];
  part += 1;
}
template <typename Acc>
__device__ __forceinline__ void add_partial(
    ShiftedSums<Acc>& sum, const Acc*& part, bool first, Acc count) {
  if (first) sum.shift = part[0];
  add_values(sum, {part[0], part[1]}, count);
  part += 2;
}

// The total over the threads of a column, of `count` values in this thread and of `all` values in
// all.
template <typename Acc>
__device__ __forceinline__ Acc total_over_y(Acc* shared, Acc sum, Acc, Acc) {
  Acc total[1] = {sum};
  sum_over_y<1>(shared, total);
  return total[0];
}
template <typename Acc>
__device__ __forceinline__ Moments<Acc> total_over_y(
    Acc* shared, const ShiftedSums<Acc>& sum, Acc count, Acc all) {
  Moments<Acc> total[1] = {moments_of(sum, count)};
  moments_over_y<1>(shared, total, [=](int) { return count; }, [=](int) { return all; });
  return total[0];
}

// The sums of pass kPass over `all` elements, from `count` partial results, of which part_of(i) is
// where the first component lies. All threads of the block take part; a thread that is not active,
// as its column does not exist, adds nothing. All threads of a column get the result. `shared`
// holds 2 * 256 values.
//
// Only moments need the number of elements of a partial result, which elements_of(i) says; it is
// called for each of a thread's partial results, in order.
template <class P, int kPass, typename PartOf, typename ElementsOf>
__device__ __forceinline__ Totals<P, kPass> collect_partials(
    const P& p, bool active, int64_t count, typename P::Acc all, typename P::Acc* shared,
    PartOf part_of, ElementsOf elements_of) {
  using Acc = typename P::Acc;
  constexpr int kComponents = Totals<P, kPass>::kComponents;
  constexpr bool kHasMoments = kComponents > Totals<P, kPass>::kFields;
  constexpr int kBatch = 4;  // partial results that a thread loads before it uses the first
  Running<P, kPass> sums = {};
  Acc seen = Acc(0);  // elements so far
  for (int64_t base = threadIdx.y; active && base < count; base += kBatch * blockDim.y) {
    Acc part[kBatch][kComponents];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = base + b * blockDim.y;
      if (i >= count) break;
      const Acc* const from = part_of(i);
#pragma unroll
      for (int c = 0; c < kComponents; ++c) {
        // Not through the read-only cache: blocks of the same launch may have written it.
        part[b][c] = from[c * p.channels];
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = base + b * blockDim.y;
      if (i >= count) break;
      Acc elements = Acc(0);
      if constexpr (kHasMoments) elements = Acc(elements_of(i));
      const Acc* next = part[b];
      each([&](auto, auto& sum) { add_partial(sum, next, seen == Acc(0), elements); }, sums);
      seen += elements;
    }
  }
  Totals<P, kPass> totals;
  each(
      [&](auto, auto& total, const auto& sum) { total = total_over_y(shared, sum, seen, all); },
      totals, sums);
  return totals;
}
// The same of a column, whose partial results are those of `blocks` blocks: of all rows, if
// `rows_of` says how many each has.
template <class P, int kPass, typename RowsOf>
__device__ __forceinline__ Totals<P, kPass> collect_column(
    const P& p, int64_t column, bool active, int64_t blocks, typename P::Acc* shared,
    RowsOf rows_of) {
  constexpr int64_t kComponents = Totals<P, kPass>::kComponents;
  return collect_partials<P, kPass>(
      p, active, blocks, typename P::Acc(p.rows), shared,
      [&](int64_t block) { return p.partials + block * kComponents * p.channels + column; },
      rows_of);
}

// The rows of a thread's partial results: rows_of_one each, unless the rows end before. There are
// `left` rows from the first row of its first partial result on, and `stride` rows from one of its
// partial results to the next.
struct EvenRows {
  int64_t rows_of_one, left, stride;

  __device__ __forceinline__ int64_t operator()(int64_t) {
    const int64_t now = left < 0 ? 0 : left < rows_of_one ? left : rows_of_one;
    left -= stride;
    return now;
  }
};

// What is known of a channel from memory. All channel tensors: the compiler drops those that
// nothing uses. kCounts: whether the first channel's thread counts the batch.
template <class P, int kPass, bool kCounts>
__device__ __forceinline__ Known<P> known_of_channel(const P& p, int64_t channel) {
  using Acc = typename P::Acc;
  Known<P> k{p.scalars(), {}, {}, {}};
  p.template channel_tensors<kPass>([&](auto, auto* pointer, bool present, auto field) {
    k.*field = present ? Acc(widen(read_at(pointer, channel))) : Acc(0);
  });
  // The thread that counts waits for the count while the loads above are in flight.
  if constexpr (kCounts) {
    if (channel == 0) p.template count<kPass>();
  }
  p.derive_channel(k);
  return k;
}

// Computes what follows from the sums of pass kPass, and stores the results that are of a record,
// at the same place in each tensor.
template <class Record, int kPass, class P>
__device__ __forceinline__ void store_results(
    const P& p, Known<P>& k, const Totals<P, kPass>& total, int64_t at) {
  p.template follow<kPass>(k, total);
  p.template finish<kPass>(k, total);
  p.template results<kPass, false>([&](auto* pointer, auto field) {
    if constexpr (std::is_same_v<typename RecordOf<decltype(field)>::type, Record>) {
      if (pointer != nullptr) store_value(pointer + at, k.*field);
    }
  });
}

// The same of a column, in one thread of each.
template <class P, int kPass>
__device__ __forceinline__ void finish_channel(
    const P& p, int64_t column, const Totals<P, kPass>& total) {
  Known<P> k = known_of_channel<P, kPass, true>(p, column);
  store_results<typename P::Channel, kPass>(p, k, total, column);
}

// The partial results are those of pointwise_kernel() or of the row kernel. With tiles of `period`
// rows each block of the pointwise kernel stores `period` of them, each of one row of each of its
// tiles_per_block tiles; full_tiles have all their rows. Only moments need these three.
template <class P, int kPass>
__global__ void __launch_bounds__(kFinalReductionThreads) final_reduction_kernel(
    const __grid_constant__ P p, int64_t blocks, int64_t tiles_per_block, int period,
    int64_t full_tiles) {
  using Acc = typename P::Acc;
  wait_for_earlier_kernels();
  const int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool active = column < p.channels;
  int64_t left = 0, stride = 0;
  if constexpr (Totals<P, kPass>::kComponents > Totals<P, kPass>::kFields) {
    // All partial results of a thread are of the same row of a tile, as blockDim.y is a multiple of
    // the period. So tiles are counted here instead of rows.
    const unsigned row = threadIdx.y % period;
    const bool more = row < p.rows - full_tiles * period;  // in the last tile, which is not full
    stride = blockDim.y / period * tiles_per_block;
    left = full_tiles + more - threadIdx.y / period * tiles_per_block;
  }
  const Totals<P, kPass> total = collect_column<P, kPass>(
      p, column, active, blocks, shared_memory<Acc>(), EvenRows{tiles_per_block, left, stride});
  if (threadIdx.y != 0 || !active) return;
  finish_channel<P, kPass>(p, column, total);
}

// Shared memory of a block.
template <class P>
size_t final_reduction_bytes() {
  return kFinalReductionThreads * 2 * sizeof(typename P::Acc);
}

// blocks: how many partial results a column has, `period` for each block of a pointwise kernel.
// Those of the row kernel are not moments: for them tiles_per_block is 0 and the period 1.
template <int kPass, class P>
cudaError_t launch_final_reduction(
    const P& p, int64_t blocks, int64_t tiles_per_block, int period, cudaStream_t stream) {
  const FinalReductionShape shape = final_reduction_shape(p.channels, blocks);
  return launch(
      final_reduction_kernel<P, kPass>, shape.grid, shape.block, final_reduction_bytes<P>(), stream,
      p, blocks, tiles_per_block, period, p.rows / period);
}

}  // namespace fusegen
