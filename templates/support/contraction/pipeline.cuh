// The sums of a tile, by Hopper's tensor cores: what a block's producer and consumers do for it.
#pragma once

#include <cstdint>

#include "../launch.cuh"
#include "hopper.cuh"
#include "tensor_maps.cuh"
#include "tiles.cuh"

namespace fusegen {

constexpr int kBlock = 64 * kTileSum * 2;  // bytes of 64 rows, or of 64 columns, of a tile

struct PieceMaps {
  CUtensorMap left_high, left_low, right_high, right_low;
};

template <bool kLeftTransposed, bool kRightTransposed>
cudaError_t describe_pieces(const Operation& o, PieceMaps& maps) {
  const Product& p = o.product;
  const auto describe = [&](CUtensorMap* map, const __half* data, bool transposed, int64_t along,
                            int64_t stride) {
    return transposed ? describe_matrix(map, data, p.sum, along, stride, kTileSum)
                      : describe_matrix(map, data, along, p.sum, stride, 64);
  };
  constexpr bool kLeft = kLeftTransposed, kRight = kRightTransposed;
  cudaError_t error = describe(&maps.left_high, o.left.high, kLeft, p.rows, o.left.stride);
  if (error == cudaSuccess) {
    error = describe(&maps.left_low, o.left.low, kLeft, p.rows, o.left.stride);
  }
  if (error == cudaSuccess) {
    error = describe(&maps.right_high, o.right.high, kRight, p.columns, o.right.stride);
  }
  if (error == cudaSuccess) {
    error = describe(&maps.right_low, o.right.low, kRight, p.columns, o.right.stride);
  }
  return error;
}

// Copies a tile of an operand's piece: 128 elements along the result from `along`, 64 along the
// sum. rank: of the block in its cluster; shared: whether both blocks want this tile.
template <bool kTransposed>
__device__ __forceinline__ void copy_tile(
    uint32_t to, const CUtensorMap& map, uint32_t barrier, int along, int sum, int rank,
    bool shared) {
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const int first = along + 64 * block;
    const int inner = kTransposed ? first : sum, outer = kTransposed ? sum : first;
    if (!shared) {
      copy_box(to + block * kBlock, map, barrier, inner, outer);
    } else if (block == rank) {
      copy_box_to(3, to + block * kBlock, map, barrier, inner, outer);
    }
  }
}

// The operand of step `step` (16 terms) of a tile; along: which 64 of its 128 rows it begins with.
template <bool kTransposed>
__device__ __forceinline__ uint64_t operand_of(uint32_t tile, int along, int step) {
  constexpr uint32_t kStep = kTransposed ? 16 * 128 : 16 * 2;
  return operand(tile + along * kBlock + step * kStep, kTransposed ? kBlock : 16);
}

// The stages of a block's shared memory, as the producer or a consumer goes through them.
template <bool kLeftTransposed, bool kRightTransposed>
class Pipeline {
 public:
  __device__ __forceinline__ Pipeline(
      const PieceMaps& maps, const Product& p, Shared shared, int rank)
      : maps_(maps), shared_(shared), rank_(rank) {
    const uint32_t raw = shared_address(shared_memory<unsigned char>());
    tiles_ = (raw + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    full_ = tiles_ + kStages * kStage;
    empty_ = full_ + 8 * kStages;
    steps_ = int((p.sum + kTileSum - 1) / kTileSum);
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        barrier_init(full_ + 8 * i, 1);
        barrier_init(empty_ + 8 * i, 2 * kConsumers);  // free when both blocks are done
      }
      barrier_inits_visible();
    }
    cluster_barrier();
  }
  // The other block may still copy to this one, and arrive at its barriers.
  __device__ __forceinline__ void end() { cluster_barrier(); }

  __device__ __forceinline__ void begin_producer() { give_registers<24>(); }
  __device__ __forceinline__ void begin_consumer() { take_registers<240>(); }

  // Copies all that a tile's sums are made of; for the first thread.
  __device__ __forceinline__ void copy(const TilePlace& at) {
    if (threadIdx.x != 0) return;
    const bool left = shared_ == Shared::kLeft, right = shared_ == Shared::kRight;
    for (int i = 0; i < steps_; ++i, next_stage()) {
      barrier_wait(empty_ + 8 * stage_, phase_ ^ 1);
      const uint32_t to = tiles_ + stage_ * kStage, bar = full_ + 8 * stage_;
      barrier_expect(bar, kStage);
      const int sum = i * kTileSum;
      copy_tile<kLeftTransposed>(to, maps_.left_high, bar, at.row, sum, rank_, left);
      copy_tile<kLeftTransposed>(to + kPiece, maps_.left_low, bar, at.row, sum, rank_, left);
      copy_tile<kRightTransposed>(
          to + 2 * kPiece, maps_.right_high, bar, at.column, sum, rank_, right);
      copy_tile<kRightTransposed>(
          to + 3 * kPiece, maps_.right_low, bar, at.column, sum, rank_, right);
    }
  }

  // The sums of a warpgroup's 64 x 128 elements: of products of high pieces, and of those of a high
  // and a low one. half: of the tile's rows.
  __device__ __forceinline__ void accumulate(
      const TilePlace&, int half, float (&sum)[64], float (&cross)[64]) {
    float high[64];
#pragma unroll
    for (int n = 0; n < 64; ++n) sum[n] = 0, cross[n] = 0, high[n] = 0;
    for (int i = 0; i < steps_; ++i, next_stage()) {
      barrier_wait(full_ + 8 * stage_, phase_);
      const uint32_t from = tiles_ + stage_ * kStage;
#pragma unroll
      for (int first = 0; first < kTileSum; first += kPromoted) {
        wgmma_begin();
#pragma unroll
        for (int step = first / 16; step < (first + kPromoted) / 16; ++step) {
          const uint64_t left_high = operand_of<kLeftTransposed>(from, half, step);
          const uint64_t left_low = operand_of<kLeftTransposed>(from + kPiece, half, step);
          const uint64_t right_high = operand_of<kRightTransposed>(from + 2 * kPiece, 0, step);
          const uint64_t right_low = operand_of<kRightTransposed>(from + 3 * kPiece, 0, step);
          wgmma<kLeftTransposed, kRightTransposed>(cross, left_low, right_high, 1);
          wgmma<kLeftTransposed, kRightTransposed>(cross, left_high, right_low, 1);
          wgmma<kLeftTransposed, kRightTransposed>(
              high, left_high, right_high, step != first / 16);
        }
        wgmma_commit();
        wgmma_wait<0>();
        if (first + kPromoted == kTileSum && threadIdx.x % 128 < 2) {
          barrier_arrive_at(empty_ + 8 * stage_, threadIdx.x % 128);
        }
#pragma unroll
        for (int n = 0; n < 64; ++n) sum[n] += high[n];
      }
    }
  }

 private:
  __device__ __forceinline__ void next_stage() {
    if (++stage_ == kStages) stage_ = 0, phase_ ^= 1;
  }

  const PieceMaps& maps_;
  const Shared shared_;
  const int rank_;
  uint32_t tiles_, full_, empty_;
  int steps_;
  int stage_ = 0;
  uint32_t phase_ = 0;
};

}  // namespace fusegen
