// A product of pieces on Hopper's tensor cores.
//
// One warpgroup copies tiles of the four piece matrices to shared memory, stage by stage; two others
// multiply them, 64 x 128 elements of the result each. The tensor core cuts off what falls below
// its accumulator, which would grow to a bias, so the products of high pieces are added to a sum in
// ordinary float32 every kPromoted terms.
//
// Two blocks with neighbouring tiles are a cluster. The operand that they share comes from the L2
// cache once: each copies one half of the tile to both. Without that the cache would be too slow.
#pragma once

#include "../launch.cuh"
#include "pieces.cuh"
#include "recheck.cuh"

#if defined(__CUDACC__)
#include "hopper.cuh"
#include "tensor_maps.cuh"
#endif

namespace fusegen {

#if !defined(__CUDACC__)

inline int has_tensor_core_kernel() { return 0; }
inline cudaError_t launch_tensor_cores(
    ProductKind, const Product&, const Pieces&, const Pieces&, cudaStream_t) {
  return cudaErrorNotSupported;
}

#else

constexpr int kTileRows = 128, kTileColumns = 128, kTileSum = 64, kStages = 3;
constexpr int kPromoted = 64;                    // terms of the sum, at most kTileSum
constexpr int kPiece = kTileRows * kTileSum * 2;  // bytes of a tile of one piece matrix
constexpr int kStage = 4 * kPiece;
constexpr int kBlock = 64 * kTileSum * 2;  // bytes of 64 rows, or of 64 columns, of a tile
constexpr int kConsumers = 2;              // warpgroups
constexpr int kProductThreads = 128 * (1 + kConsumers);
constexpr int kSharedAlignment = 1024;  // of a swizzled tile
constexpr int kProductShared = kStages * kStage + kSharedAlignment + 2 * kStages * 8;
// Tiles of so many rows of tiles follow each other, column by column, so that the blocks which run
// at the same time share rows and columns in the L2 cache.
constexpr int kTileGroup = 8;

struct PieceMaps {
  CUtensorMap left_high, left_low, right_high, right_low;
};

// Which operand the blocks of a cluster share: the right one if their tiles differ in their rows.
enum class Shared { kLeft, kRight };

// The first row and column of a tile of the result. down, across: how many tiles there are; where
// blocks of a cluster differ in their rows (columns), pairs of tiles.
struct TilePlace {
  int row, column;
};
__device__ __forceinline__ TilePlace place_of(
    int tile, int down, int across, Shared shared, int rank) {
  const int first = tile / (kTileGroup * across) * kTileGroup;
  const int rows = min(kTileGroup, down - first), within = tile - first * across;
  const int row = first + within % rows, column = within / rows;
  return shared == Shared::kRight ? TilePlace{(2 * row + rank) * kTileRows, column * kTileColumns}
                                  : TilePlace{row * kTileRows, (2 * column + rank) * kTileColumns};
}

// Copies a tile of an operand's piece: 128 elements along the result from `along`, 64 along the sum.
// rank: of the block in its cluster; shared: whether both blocks want this tile.
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

// Writes a warpgroup's 64 x 128 elements. d: as wgmma has them, register i of a thread is row
// 16 warp + lane / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (lane % 4) + i % 2.
__device__ __forceinline__ void store_tile(
    const Product& p, const float (&sum)[64], const float (&cross)[64], int first_row,
    int first_column) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int row = first_row + thread / 32 * 16 + lane / 4, column = first_column + lane % 4 * 2;
  const bool paired = p.columns % 2 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t i = row + 8 * half;
    if (i >= p.rows) continue;
    const int e = row_exponent(__ldg(p.left_largest + i));
    float* const to = p.result + i * p.columns;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int j = column + 8 * n, at = 4 * n + 2 * half;
      if (j >= p.columns) continue;
      int e0 = e, e1 = e;
      if (p.right_largest != nullptr) {
        e0 += row_exponent(__ldg(p.right_largest + j));
        if (j + 1 < p.columns) e1 += row_exponent(__ldg(p.right_largest + j + 1));
      }
      const float first = scaled(fmaf(cross[at], kLowUnit, sum[at]), -e0);
      const float second = scaled(fmaf(cross[at + 1], kLowUnit, sum[at + 1]), -e1);
      if (paired) {
        *reinterpret_cast<float2*>(to + j) = make_float2(first, second);
      } else {
        to[j] = first;
        if (j + 1 < p.columns) to[j + 1] = second;
      }
    }
  }
}

template <bool kLeftTransposed, bool kRightTransposed>
__global__ void __launch_bounds__(kProductThreads, 1)
    multiply_pieces(const __grid_constant__ PieceMaps maps, const __grid_constant__ Product p,
                    Shared shared) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wait_for_earlier_kernels();
  const uint32_t raw = shared_address(shared_memory<unsigned char>());
  const uint32_t tiles = (raw + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  const uint32_t full = tiles + kStages * kStage, empty = full + 8 * kStages;
  const int steps = int((p.sum + kTileSum - 1) / kTileSum);
  const int row_span = kTileRows * (shared == Shared::kRight ? 2 : 1);
  const int column_span = kTileColumns * (shared == Shared::kLeft ? 2 : 1);
  const int down = int((p.rows + row_span - 1) / row_span);
  const int across = int((p.columns + column_span - 1) / column_span);
  const int rank = blockIdx.z;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 2 * kConsumers);  // a stage is free when both blocks are done
    }
    barrier_inits_visible();
  }
  cluster_barrier();
  const int group = threadIdx.x / 128;
  int stage = 0;
  uint32_t phase = 0;
  const auto next_stage = [&] {
    if (++stage == kStages) stage = 0, phase ^= 1;
  };
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      const bool left = shared == Shared::kLeft, right = shared == Shared::kRight;
      for (int tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
        const TilePlace at = place_of(tile, down, across, shared, rank);
        for (int i = 0; i < steps; ++i, next_stage()) {
          barrier_wait(empty + 8 * stage, phase ^ 1);
          const uint32_t to = tiles + stage * kStage, bar = full + 8 * stage;
          barrier_expect(bar, kStage);
          const int sum = i * kTileSum;
          copy_tile<kLeftTransposed>(to, maps.left_high, bar, at.row, sum, rank, left);
          copy_tile<kLeftTransposed>(to + kPiece, maps.left_low, bar, at.row, sum, rank, left);
          copy_tile<kRightTransposed>(
              to + 2 * kPiece, maps.right_high, bar, at.column, sum, rank, right);
          copy_tile<kRightTransposed>(
              to + 3 * kPiece, maps.right_low, bar, at.column, sum, rank, right);
        }
      }
    }
  } else {
    take_registers<240>();
    const int half = group - 1;  // of the tile's rows
    for (int tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
      float sum[64], high[64], cross[64];
#pragma unroll
      for (int n = 0; n < 64; ++n) sum[n] = 0, cross[n] = 0, high[n] = 0;
      for (int i = 0; i < steps; ++i, next_stage()) {
        barrier_wait(full + 8 * stage, phase);
        const uint32_t from = tiles + stage * kStage;
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
            barrier_arrive_at(empty + 8 * stage, threadIdx.x % 128);
          }
#pragma unroll
          for (int n = 0; n < 64; ++n) sum[n] += high[n];
        }
      }
      const TilePlace at = place_of(tile, down, across, shared, rank);
      store_tile(p, sum, cross, at.row + 64 * half, at.column);
    }
  }
  cluster_barrier();  // the other block may still copy to this one, and arrive at its barriers
#endif
}

inline int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

// Whether this file has the kernel for the current device.
inline int has_tensor_core_kernel() {
#if defined(FUSEGEN_SM_90A)
  return compute_capability() == 90;
#else
  return 0;
#endif
}

template <bool kLeftTransposed, bool kRightTransposed>
cudaError_t launch_product(
    const Product& p, const Pieces& left, const Pieces& right, cudaStream_t stream) {
  PieceMaps maps;
  const auto describe = [&](CUtensorMap* map, const __half* data, bool transposed, int64_t along,
                            int64_t stride) {
    return transposed ? describe_matrix(map, data, p.sum, along, stride, kTileSum)
                      : describe_matrix(map, data, along, p.sum, stride, 64);
  };
  cudaError_t error = describe(&maps.left_high, left.high, kLeftTransposed, p.rows, left.stride);
  if (error == cudaSuccess) {
    error = describe(&maps.left_low, left.low, kLeftTransposed, p.rows, left.stride);
  }
  if (error == cudaSuccess) {
    error = describe(&maps.right_high, right.high, kRightTransposed, p.columns, right.stride);
  }
  if (error == cudaSuccess) {
    error = describe(&maps.right_low, right.low, kRightTransposed, p.columns, right.stride);
  }
  if (error != cudaSuccess) return error;
  const Shared shared = p.rows > kTileRows ? Shared::kRight : Shared::kLeft;
  const int64_t row_span = kTileRows * (shared == Shared::kRight ? 2 : 1);
  const int64_t column_span = kTileColumns * (shared == Shared::kLeft ? 2 : 1);
  const int64_t tiles = ((p.rows + row_span - 1) / row_span) *
                        ((p.columns + column_span - 1) / column_span);
  const int64_t clusters = multiprocessors() / 2;
  return launch(multiply_pieces<kLeftTransposed, kRightTransposed>,
                dim3(unsigned(tiles < clusters ? tiles : clusters), 1, 2), dim3(kProductThreads),
                kProductShared, stream, maps, p, shared);
}

inline cudaError_t launch_tensor_cores(
    ProductKind kind, const Product& p, const Pieces& left, const Pieces& right,
    cudaStream_t stream) {
  if (!has_tensor_core_kernel()) return cudaErrorNotSupported;
  switch (kind) {
    case ProductKind::kForward: return launch_product<false, false>(p, left, right, stream);
    case ProductKind::kInputGradient: return launch_product<false, true>(p, left, right, stream);
    default: return launch_product<true, true>(p, left, right, stream);
  }
}

#endif

}  // namespace fusegen
