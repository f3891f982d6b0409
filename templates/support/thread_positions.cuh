// Where a thread is in its block, and which segment of a row kernel it belongs to.
#pragma once

#include <cstdint>

#include "launch.cuh"

namespace fusegen {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int warp_count() { return (blockDim.x * blockDim.y + 31) / 32; }

// The position of a thread of a row kernel. A segment (a row, or a group of its channels) has
// `lanes` neighbouring threads of a warp, or all threads of the block. Segments follow each other:
// in each iteration a block has segments_per_block neighbouring segments of rows_per_iteration
// rows, row by row. Threads after the last segment that fits a warp, and after the last row, are
// not active.
struct ThreadPosition {
  int lane;     // within its segment
  int segment;  // below segments_per_block
  int row;      // below rows_per_iteration
  int index;    // of the thread among the active ones
  bool active;
};

// kShort: whether a segment may have fewer threads than a block.
template <bool kShort>
__device__ __forceinline__ ThreadPosition position_of(
    int thread, int lanes, int segments_per_block, int rows_per_iteration) {
  if (!kShort || lanes > 32) return {thread, 0, 0, thread, true};
  const int per_warp = 32 / lanes;
  const int place = thread % 32 / lanes;
  const int lane = thread % 32 % lanes;
  const int number = thread / 32 * per_warp + place;
  const int row = number / segments_per_block;
  return {
      lane, number % segments_per_block, row, number * lanes + lane,
      place < per_warp && row < rows_per_iteration};
}

// The launch configuration of a row kernel, as Row of row_shapes.cuh has it, and by how many rows,
// segments and elements a thread moves on from one iteration to the next.
struct RowGrid {
  int lanes, segments_per_block, rows_per_iteration, period;
  int64_t step, item_step, at_step;
  int64_t size;        // elements of a tensor
  int64_t vector_end;  // see load_pack()
  int64_t sample_blocks;  // see Row

  template <bool kShort>
  __device__ __forceinline__ ThreadPosition position(int thread) const {
    return position_of<kShort>(thread, lanes, segments_per_block, rows_per_iteration);
  }
};

}  // namespace fusegen
