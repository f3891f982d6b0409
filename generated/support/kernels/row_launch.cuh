// The launch configuration of the row kernel for a program and its sizes, and the launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../devices.cuh"
#include "../launch.cuh"
#include "../row_shapes.cuh"
#include "../row_work.cuh"
#include "../types.cuh"
#include "program.cuh"
#include "row.cuh"
#include "row_passes.cuh"

namespace fusegen {

// A launch of a row kernel. full_vector: a thread has a vector of 16 bytes in spite of column sums.
struct RowLaunch : Row {
  bool full_vector;
};

// The instances of the row kernel for a program whose row kernel begins with pass kFirst.
template <class P, int kFirst, int kVec>
struct RowInstances {
  using Passes = RowPasses<P, kFirst>;
  using T = typename P::T;
  // With column sums a thread has registers for one vector of 16 bytes, not for two.
  static constexpr bool kSums = Passes::kHasColumnSums;
  static constexpr int kRow = kSums ? std::min(kVec, 4) : kVec;
  static constexpr int kFullVector =
      kSums && kVec > 1 ? std::max(kVectorOf<T, 0>, kRow) : kRow;
  static constexpr bool kHasClusters = Passes::kClusters && kSomeHaveClusters;
  // Where there are clusters, full blocks are for elements of 16 bits only: see
  // row_takes_full_block().
  static constexpr bool kHasFullBlocks =
      Passes::kFullBlocks && (!Passes::kClusters || sizeof(T) == 2 || kSomeLackClusters);
};

// Sums the bytes per column of the channel tensors that some of kPasses need.
template <unsigned kPasses>
struct ChannelBytes {
  int& bytes;
  template <unsigned kUses, typename E, typename Field>
  __host__ __device__ void operator()(Uses<kUses>, E*, bool, Field) const {
    if ((kUses & kPasses) != 0) bytes += int(sizeof(E));
  }
};

// Bytes of shared memory per thread for the values of its columns, two vectors of them.
template <int kFirst, int kVec, class P>
int row_shared_bytes(const P& p) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  int bytes = 0;  // per column
  if (Passes::kFullBlocks || Passes::kManyConstants) {
    p.template channel_tensors<kFirst>(ChannelBytes<Passes::kMask>{bytes});
  }
  if (Passes::kFullBlocks) bytes += Passes::kColumnSums * int(sizeof(typename P::Acc));
  return 2 * Instances::kRow * bytes;
}

template <int kFirst, int kVec, class P>
RowWork row_work(const P& p, const Target& target) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  constexpr int kRow = Instances::kRow;  // of long segments, whose threads have no full vectors
  constexpr int64_t kExchanged =
      Passes::template kExchange<kRow> * int64_t(sizeof(typename P::Acc));
  const int64_t bytes = target.shared_bytes - kExchanged;
  const int threads =
      row_most_threads(Instances::kHasFullBlocks, row_shared_bytes<kFirst, kVec>(p), bytes);
  return {Passes::kColumnSums, Passes::kBlocks, P::kRowConstants,
          Passes::kReadAgain,  P::kRowValues,   int(sizeof(typename P::T)),
          threads,             Passes::kClusters ? target.most_cluster : 1};
}

// The launch configuration for the sizes. items is 0 where segments do not fit registers. With
// column sums the grid is set, and each column gets grid.y partial results; without, launch_row()
// sets the grid.
template <int kFirst, int kVec, bool kPacked, class P>
RowLaunch row_fit(const P& p, const LaunchContext& context) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  constexpr int kRow = Instances::kRow, kFullVector = Instances::kFullVector;
  const Shapes& shapes = context.shapes;
  const int multiprocessors = context.target.multiprocessors;
  const RowWork work = row_work<kFirst, kVec>(p, context.target);
  const int64_t groups = Passes::kOfRows ? 1 : p.groups;
  const int64_t length = p.channels / groups, size = context.rows * p.channels;
  const bool full_vector = kFullVector > kRow &&
      row_can_have_full_vector(work, kPacked, length, kFullVector) &&
      row_doubles(shapes, size, kFullVector, multiprocessors);
  const bool may_double =
      !Instances::kSums || (kPacked ? work.bytes == 2 : unaligned_doubles(work));
  const bool doubles = may_double && row_doubles(shapes, size, 2 * kRow, multiprocessors);
  const int vector = full_vector ? kFullVector : kRow, most_items = full_vector ? 1 : 2;
  RowLaunch row{
      row_shape(work, context.rows, groups, length, vector, kPacked, most_items, doubles,
                multiprocessors),
      full_vector};
  if (kSumsSamples<P> && row.items > 0) {
    set_row_blocks_of_samples(row, shapes, p.rows, p.samples, groups, multiprocessors);
  } else if (Instances::kSums && row.items > 0) {
    set_row_blocks(
        row, shapes, work, p.rows, groups, length, row.resident, multiprocessors);
  }
  return row;
}

template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_row(const P& p, RowLaunch row, const LaunchContext& context) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  constexpr int kRow = Instances::kRow, kFullVector = Instances::kFullVector;
  auto* kernel = row_kernel<P, kFirst, kRow, kPacked, 1>;
  if (row.items == 2) kernel = row_kernel<P, kFirst, kRow, kPacked, 2>;
  if constexpr (Instances::kHasFullBlocks) {
    if (row.full_block) kernel = row_kernel<P, kFirst, kRow, kPacked, 2, true>;
  }
  if constexpr (Instances::kHasClusters) {
    if (row.cluster > 1) kernel = row_kernel<P, kFirst, kRow, kPacked, 2, false, true>;
  }
  int exchanged = Passes::template kExchange<kRow>;
  if constexpr (kFullVector > kRow) {
    if (row.full_vector) kernel = row_kernel<P, kFirst, kFullVector, kPacked, 1>;
    if (row.full_vector) exchanged = Passes::template kExchange<kFullVector>;
  }
  const int vector = row.full_vector ? kFullVector : kRow;
  const bool in_shared = Passes::channels_in_shared(row.full_block, row.items * vector);
  const size_t shared_bytes = exchanged * sizeof(typename P::Acc) +
      (in_shared ? row.block.x * row_shared_bytes<kFirst, kVec>(p) : 0);
  const int64_t groups = Passes::kOfRows ? 1 : p.groups;
  if (!Instances::kSums) {
    // No result depends on the number of blocks, so it is what the compiled kernel allows.
    const int resident = resident_blocks(kernel, row.block, shared_bytes, row.resident);
    set_row_blocks(
        row, context.shapes, row_work<kFirst, kVec>(p, context.target), p.rows, groups,
        p.channels / groups, resident, context.target.multiprocessors);
  }
  const RowGrid grid{row.lanes,
                     row.segments_per_block,
                     row.rows_per_iteration,
                     row.period,
                     row.step,
                     row.step * groups,
                     row.step * p.channels,
                     p.rows * p.channels,
                     context.vector_end,
                     row.sample_blocks};
  return launch(kernel, row.grid, row.block, shared_bytes, context.stream, p, grid);
}

}  // namespace fusegen
