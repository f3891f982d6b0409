// The launch configuration of the kernel that has rows in shared memory, and the launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../devices.cuh"
#include "../launch.cuh"
#include "../row_shared_shapes.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "program.cuh"
#include "row_passes.cuh"
#include "row_shared.cuh"

namespace fusegen {

// Adds the bytes per column of the channel tensors in memory that some of kPasses need.
template <unsigned kPasses>
struct ConstantBytes {
  int& bytes;
  template <unsigned kUses, typename E, typename Field>
  __host__ __device__ void operator()(Uses<kUses>, E*, bool, Field) const {
    if ((kUses & kPasses) != 0 && !std::is_same_v<E, const ChannelNumber>) bytes += sizeof(E);
  }
};

// threads is 0 where rows do not fit.
template <int kFirst, int kVec, bool kPacked, class P>
RowShared row_shared_fit(const P& p, const LaunchContext& context) {
  using Passes = RowPasses<P, kFirst>;
  constexpr int64_t kFixed = kRowSharedExchange * int64_t(sizeof(typename P::Acc));
  int bytes = read_bytes<P>(Passes::kReads);
  p.template channel_tensors<kFirst>(ConstantBytes<Passes::kMask>{bytes});
  // A row that does not begin at a multiple of a vector overlaps with up to one more.
  const int64_t length = p.channels;
  const int64_t vectors = kPacked ? ceil_div(length, kVec) : (length + kVec - 2) / kVec + 1;
  return row_shared_shape(context.rows, vectors, kVec * bytes, kFixed, context.target);
}

// vector_end: see load_pack().
template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_row_shared(
    const P& p, const RowShared& row, const LaunchContext& context) {
  auto* const kernel = row_shared_kernel<P, kFirst, kVec, kPacked>;
  const dim3 block(unsigned(row.threads));
  // No result depends on the number of blocks, so it is what the compiled kernel allows.
  const int64_t promised = row_shared_at_once(row, context.target);
  const int64_t most = resident_clusters(kernel, row.cluster, block, row.bytes, promised);
  const int period = kPacked ? 1 : row_period(p.channels, kVec);
  const int64_t blocks = row_shared_blocks(p.rows, most * context.shapes.row_waves, period);
  const dim3 grid(unsigned(blocks), 1, unsigned(row.cluster));
  return launch(
      kernel, grid, block, row.bytes, context.stream, p,
      RowSharedGrid{row.vectors, context.vector_end});
}

}  // namespace fusegen
