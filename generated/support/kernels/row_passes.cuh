// Properties of a program that the row kernel and its launch use: what its passes reduce, read and
// exchange. A segment is a row, or a group of a row's channels.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../row_work.cuh"
#include "../unaligned.cuh"
#include "../types.cuh"
#include "program.cuh"

namespace fusegen {

// The passes of a row kernel, from kFirst to the last one. All but the last reduce segments of one
// kind; the last may have column sums, which it stores as partial results.
template <class P, int kFirst>
struct RowPasses {
  using T = typename P::T;
  static constexpr int kLast = P::kPasses - 1;
  using Steps = std::make_integer_sequence<int, P::kPasses - kFirst>;
  static constexpr unsigned kMask = (1u << P::kPasses) - (1u << kFirst);
  static constexpr bool kOfRows = P::kUnit[kFirst] == Unit::kRow;
  static_assert(kOfRows || P::kUnit[kFirst] == Unit::kGroup);

  static constexpr bool kHasColumnSums =
      P::kUnit[kLast] != Unit::kNone && Terms<P, kLast>::kFields > 0;
  static constexpr int kColumnSums = kHasColumnSums ? Terms<P, kLast>::kFields : 0;

  // Moments, plain sums, and values of the largest record of a segment in a pass.
  template <int kPass>
  static constexpr bool kReduces =
      Terms<P, kPass>::kFields > 0 && !(kHasColumnSums && kPass == kLast);
  template <int kPass>
  static constexpr int kMoments = kReduces<kPass> ? count_of<P, kPass, MeanAndSquares>() : 0;
  template <int kPass>
  static constexpr int kPlainSums = kReduces<kPass> ? count_of<P, kPass, Sum>() : 0;
  template <int kPass>
  static constexpr int kCombined = kReduces<kPass> ? combined_values<P, kPass>() : 0;

  template <int... kStep>
  static constexpr bool has_moments(std::integer_sequence<int, kStep...>) {
    return ((kMoments<kFirst + kStep> > 0) || ...);
  }
  static constexpr bool kHasMoments = has_moments(Steps());
  template <int... kStep>
  static constexpr int most_combined(std::integer_sequence<int, kStep...>) {
    return std::max({kCombined<kFirst + kStep>...});
  }
  static constexpr int kMostCombined = most_combined(Steps());

  // Values of a segment that its warps exchange at once, at most.
  template <int... kStep>
  static constexpr int exchanged(std::integer_sequence<int, kStep...>) {
    return std::max({kHasMoments ? 2 : 0, kMostCombined, kPlainSums<kFirst + kStep>...});
  }
  static constexpr int kExchanged = exchanged(Steps());

  // Whether the channel tensors are in shared memory, where a thread has so many elements of a row.
  __host__ __device__ static constexpr bool channels_in_shared(bool full_block, int elements) {
    return full_block || (kManyConstants && elements >= 8);
  }

  // Values of shared memory that the block exchanges; values of its columns follow.
  template <int kVec>
  static constexpr int kExchange =
      kHasColumnSums ? kRowExchange<kVec, kExchanged> : 32 * (kExchanged + kHasMoments);

  // The fields of Reads that some pass needs, and how many of them are read again where each pass
  // reads its own.
  template <int... kStep>
  static constexpr unsigned read_by_any(std::integer_sequence<int, kStep...>) {
    return (P::kReadBy[kFirst + kStep] | ...);
  }
  static constexpr unsigned kReads = read_by_any(Steps());
  static constexpr int count_bits(unsigned mask) {
    int bits = 0;
    for (; mask != 0; mask >>= 1) bits += mask & 1u;
    return bits;
  }
  template <int... kStep>
  static constexpr int read_again(std::integer_sequence<int, kStep...>) {
    return (count_bits(P::kReadBy[kFirst + kStep]) + ...) - count_bits(kReads);
  }
  static constexpr int kReadAgain = read_again(Steps());

  // What registers and shared memory are left for: see row_work.cuh.
  static constexpr int kBlocks =
      row_resident_of(P::kRowConstants, kColumnSums, count_bits(kReads));
  static constexpr bool kFullBlocks = row_has_full_blocks(P::kRowConstants, kColumnSums);
  static constexpr bool kManyConstants = row_has_many_constants(P::kRowConstants, kColumnSums);

  // Whether a cluster can share a segment that is too long for a block. Not with moments or
  // extremes: these are of forward programs, which have no column sums and so have full blocks.
  // Nor with sums of samples, as blocks go on from one sample to another.
  static constexpr bool kClusters =
      kHasColumnSums && !kHasMoments && kMostCombined == 0 && !kSumsSamples<P>;

  // Whether rows can be in shared memory: see row_shared.cuh. Those that are read once need not be
  // anywhere, groups are seldom as long, and column sums would take more of it than the row.
  static constexpr bool kHasShared = kOfRows && !kHasColumnSums && kReadAgain > 0;
};

// Calls f(Index<kPass>{}) for each pass from kFirst on.
template <int kFirst, int... kStep, typename F>
__device__ __forceinline__ void each_pass(std::integer_sequence<int, kStep...>, const F& f) {
  (f(Index<kFirst + kStep>()), ...);
}

// A record of tensors with a load of a thread's vector of each.
template <int kVec, bool kUnaligned>
struct RowLoadsOf {
  template <typename E>
  using Of = std::conditional_t<
      kIsSpread<E>, Loaded<ElementOf<E>, kVec>, RowLoad<ElementOf<E>, kVec, kUnaligned>>;
};

}  // namespace fusegen
