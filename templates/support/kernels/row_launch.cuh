// Which launch configuration of the row kernel suits a program and its sizes, and the launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../row_shapes.cuh"
#include "../row_work.cuh"
#include "../types.cuh"
#include "program.cuh"
#include "row.cuh"
#include "row_passes.cuh"

namespace fusegen {

// A launch of a row kernel. wide: with a vector of 16 bytes a thread in spite of column sums.
struct RowLaunch : Row {
  bool wide;
};

// What the launches of a program have alike that begin with pass kFirst.
template <class P, int kFirst, int kVec>
struct RowInstances {
  using Passes = RowPasses<P, kFirst>;
  using T = typename P::T;
  // With column sums a thread has no room for two vectors of 16 bytes, but for one.
  static constexpr bool kSums = Passes::kHasColumnSums;
  static constexpr int kRow = kSums ? std::min(kVec, 4) : kVec;
  static constexpr int kWide = kSums ? std::max(kVectorOf<T, 0>, kRow) : kRow;
  static constexpr int kMostCluster = P::kTarget.most_cluster;
  static constexpr bool kHasClusters = Passes::kClusters && kMostCluster > 1;
  // Where there are clusters, large blocks are for elements of 16 bits only: see row_is_large().
  static constexpr bool kHasLarge =
      P::kRowHasLarge && (!Passes::kClusters || sizeof(T) == 2 || kMostCluster == 1);
};

// Adds up the bytes of a column's tensors that some of kPasses need.
template <unsigned kPasses>
struct ChannelBytes {
  int& bytes;
  template <unsigned kUses, typename E, typename Field>
  __host__ __device__ void operator()(Uses<kUses>, E*, bool, Field) const {
    if ((kUses & kPasses) != 0) bytes += int(sizeof(E));
  }
};

// The bytes of shared memory in which a thread keeps what it has of its columns, two vectors.
template <int kFirst, int kVec, class P>
int row_staged_bytes(const P& p) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  int bytes = 0;  // of a column
  if (P::kRowHasLarge || P::kRowManyConstants) {
    p.template channel_tensors<kFirst>(ChannelBytes<Passes::kMask>{bytes});
  }
  if (P::kRowHasLarge) bytes += Passes::kColumnSums * int(sizeof(typename P::Acc));
  return 2 * Instances::kRow * bytes;
}

template <int kFirst, int kVec, class P>
RowWork row_work(const P& p) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  constexpr int kRow = Instances::kRow;  // of long segments, whose threads are never wide
  constexpr int64_t kExchanged =
      Passes::template kExchange<kRow> * int64_t(sizeof(typename P::Acc));
  const int threads = row_most_threads(
      P::kRowHasLarge, row_staged_bytes<kFirst, kVec>(p), P::kTarget.shared_bytes - kExchanged);
  return {Passes::kColumnSums, P::kRowBlocks,   P::kRowConstants,
          Passes::kReadAgain,  P::kRowValues,   int(sizeof(typename P::T)),
          threads,             Passes::kClusters ? Instances::kMostCluster : 1};
}

// The launch that suits the sizes. items is 0 where segments do not fit registers or another
// schedule is faster. With column sums the grid is set, and grid.y partial results of each column
// come of it; else launch_row() sets it.
template <int kFirst, int kVec, bool kPacked, class P>
RowLaunch row_fit(const P& p, const Shapes& shapes) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  constexpr int kRow = Instances::kRow, kWide = Instances::kWide;
  constexpr int kMultiprocessors = P::kTarget.multiprocessors;
  const RowWork work = row_work<kFirst, kVec>(p);
  const int64_t groups = Passes::kOfRows ? 1 : p.groups;
  const int64_t length = p.channels / groups, size = p.rows * p.channels;
  const bool wide = kWide > kRow && row_can_be_wide(work, kPacked, length, kWide) &&
      row_doubles(shapes, size, kWide, kMultiprocessors);
  const bool may_double = !Instances::kSums || (kPacked ? work.bytes == 2 : ragged_doubles(work));
  const bool doubles = may_double && row_doubles(shapes, size, 2 * kRow, kMultiprocessors);
  RowLaunch row{
      row_shape(shapes, work, p.rows, groups, length, wide ? kWide : kRow, kPacked, wide ? 1 : 2,
                doubles, kMultiprocessors),
      wide};
  if (Instances::kSums && row.items > 0) {
    set_row_blocks(
        row, shapes, work, p.rows, groups, length, row.resident, kMultiprocessors);
  }
  return row;
}

// whole: elements of a tensor that vectors may move, where it is not packed; see RowGrid.
template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_row(
    const P& p, RowLaunch row, const Shapes& shapes, int64_t whole, cudaStream_t stream) {
  using Instances = RowInstances<P, kFirst, kVec>;
  using Passes = typename Instances::Passes;
  constexpr int kRow = Instances::kRow, kWide = Instances::kWide;
  auto* kernel = row_kernel<P, kFirst, kRow, kPacked, 1>;
  if (row.items == 2) kernel = row_kernel<P, kFirst, kRow, kPacked, 2>;
  if constexpr (Instances::kHasLarge) {
    if (row.large) kernel = row_kernel<P, kFirst, kRow, kPacked, 2, true>;
  }
  if constexpr (Instances::kHasClusters) {
    if (row.cluster > 1) kernel = row_kernel<P, kFirst, kRow, kPacked, 2, false, true>;
  }
  int exchanged = Passes::template kExchange<kRow>;
  if constexpr (kWide > kRow) {
    if (row.wide) kernel = row_kernel<P, kFirst, kWide, kPacked, 1>;
    if (row.wide) exchanged = Passes::template kExchange<kWide>;
  }
  const bool staged = Passes::stages(row.large, row.items * (row.wide ? kWide : kRow));
  const size_t shared_bytes = exchanged * sizeof(typename P::Acc) +
      (staged ? row.block.x * row_staged_bytes<kFirst, kVec>(p) : 0);
  const int64_t groups = Passes::kOfRows ? 1 : p.groups;
  if (!Instances::kSums) {
    // No result depends on the number of blocks, so it is what the compiled kernel allows.
    const int resident = resident_blocks(kernel, row.block, shared_bytes, row.resident);
    set_row_blocks(row, shapes, row_work<kFirst, kVec>(p), p.rows, groups, p.channels / groups,
                   resident, P::kTarget.multiprocessors);
  }
  const RowGrid grid{row.lanes,           row.across,
                     row.height,          row.period,
                     row.step,            row.step * groups,
                     row.step * p.channels, p.rows * p.channels,
                     whole};
  return launch(kernel, row.grid, row.block, shared_bytes, stream, p, grid);
}

}  // namespace fusegen
