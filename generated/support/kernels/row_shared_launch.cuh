// The launch configuration of the kernel that has rows in shared memory, and the launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../row_shared_shapes.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "program.cuh"
#include "row_passes.cuh"
#include "row_shared.cuh"

namespace fusegen {

// threads is 0 where rows do not fit. With column sums the number of blocks is set, of which each
// has partial results; without, launch_row_shared() sets it.
template <int kFirst, int kVec, bool kPacked, class P>
RowShared row_shared_fit(const P& p, const Shapes& shapes) {
  using Passes = RowPasses<P, kFirst>;
  using Acc = typename P::Acc;
  constexpr int64_t kFixed = kRowSharedExchange * int64_t(sizeof(Acc));
  int bytes = read_bytes<P>(Passes::kReads) + Passes::kColumnSums * int(sizeof(Acc));
  p.template channel_tensors<kFirst>(ConstantBytes<Passes::kMask>{bytes});
  // A row that does not begin at a multiple of a vector overlaps with up to one more.
  const int64_t length = p.channels;
  const int64_t vectors = kPacked ? ceil_div(length, kVec) : (length + kVec - 2) / kVec + 1;
  RowShared row = row_shared_shape(p.rows, vectors, kVec * bytes, kFixed, P::kTarget);
  if (Passes::kHasColumnSums && row.threads > 0) {
    const int64_t most = row_shared_with_sums(p.rows, row, P::kTarget) * shapes.row_waves;
    row.blocks = row_shared_blocks(p.rows, most, kPacked ? 1 : row_period(p.channels, kVec));
  }
  return row;
}

// vector_end: see load_pack().
template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_row_shared(
    const P& p, const RowShared& row, const Shapes& shapes, int64_t vector_end,
    cudaStream_t stream) {
  auto* const kernel = row_shared_kernel<P, kFirst, kVec, kPacked>;
  const dim3 block(unsigned(row.threads));
  int64_t blocks = row.blocks;
  if (!RowPasses<P, kFirst>::kHasColumnSums) {
    // No result depends on the number of blocks, so it is what the compiled kernel allows.
    const int64_t promised = row_shared_at_once(row, P::kTarget);
    const int64_t most = resident_clusters(kernel, row.cluster, block, row.bytes, promised);
    blocks = row_shared_blocks(
        p.rows, most * shapes.row_waves, kPacked ? 1 : row_period(p.channels, kVec));
  }
  const dim3 grid(unsigned(blocks), 1, unsigned(row.cluster));
  return launch(
      kernel, grid, block, row.bytes, stream, p, RowSharedGrid{row.vectors, vector_end});
}

}  // namespace fusegen
