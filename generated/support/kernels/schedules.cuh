// Runs a program: chooses a schedule by the sizes, and launches its kernels.
//
//   row        rows, or groups of channels, stay in registers from their sums to their results
//   column     tiles of columns stay in shared memory
//   l2         groups of columns stay in the L2
//   two-pass   any size: a pass over memory for each reduction, then one for the results
//   pointwise  the same where nothing is reduced before the results
//   tile       one of the last two where outer tensors are [batch, channels, positions]
//
// Passes before P::kFirstResident reduce something else than the last ones; all schedules take them
// from memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "column_launch.cuh"
#include "final_reduction.cuh"
#include "l2_launch.cuh"
#include "pointwise.cuh"
#include "program.cuh"
#include "reasons.cuh"
#include "row_launch.cuh"
#include "row_reduction.cuh"
#include "sample_reduction.cuh"
#include "scalar_reduction.cuh"
#include "tile.cuh"

namespace fusegen {

// One call of a program, with vectors of kVec elements; packed: all rows and groups begin with one.
// vector_end: elements of a tensor that vectors may move, where it is not packed.
template <class P, int kVec, bool kPacked>
class ProgramRun {
 public:
  ProgramRun(
      const P& program, const Shapes& shapes, int64_t vector_end, Scratch& scratch,
      cudaStream_t stream)
      : p_(program), shapes_(shapes), vector_end_(vector_end), scratch_(scratch), stream_(stream) {}

  cudaError_t operator()() {
    if constexpr (P::kOuterReads != 0 || P::kOuterWrites != 0) {
      if (p_.positions > 0) {
        if (explanation != nullptr) explain_tile();
        return two_pass();
      }
    }
    if constexpr (kResident && P::kUnit[kFirst] == Unit::kChannel) {
      const Column tile = column_tile<kFirst, kVec, kPacked>(p_, shapes_);
      if (explanation != nullptr) explain_column<kFirst, kVec, kPacked>(p_, shapes_, tile);
      if (tile.fits) return column(tile);
      if (shapes_.schedule == kPersistent) return cudaErrorInvalidConfiguration;
    } else if constexpr (kResident) {
      const RowLaunch fit = row_fit<kFirst, kVec, kPacked>(p_, shapes_);
      const bool chosen = fit.items > 0 && shapes_.schedule != kTwoPass;
      if (explanation != nullptr) explain_row<kFirst, kVec, kPacked>(p_, shapes_, fit, chosen);
      if (chosen) return row(fit);
      if (fit.items == 0 && shapes_.schedule == kPersistent) return cudaErrorInvalidConfiguration;
    }
    if constexpr (P::kFitsL2) {
      const L2Shape shape = l2_shape<kVec, kPacked>(p_, shapes_);
      if (explanation != nullptr) explain_l2<kVec, kPacked>(p_, shapes_, shape);
      if (shape.fits) return l2(shape);
      if (shapes_.schedule == kL2) return cudaErrorInvalidConfiguration;
    }
    if (explanation != nullptr) explain_two_pass(p_);
    return two_pass();
  }

 private:
  // The kernel that is launched next, for an explanation.
  static void next(const char* kernel, int first_pass, int last_pass) {
    if (explanation != nullptr) explanation->next(kernel, first_pass, last_pass);
  }

  static constexpr int kLast = P::kPasses - 1, kFirst = P::kFirstResident;
  static constexpr bool kResident = kFirst < kLast;

  template <int kPass>
  static constexpr bool kLeavesPartials =
      P::kUnit[kPass] == Unit::kChannel && Totals<P, kPass>::kFields > 0;

  // Whether the last pass has anything to do: not where all results are those of rows.
  static constexpr bool kHasLast =
      Results<P>::kFields > 0 || Totals<P, kLast>::kFields > 0;

  template <int kPass>
  PointwiseShape pointwise_shape_of() const {
    if constexpr (kSumsSamples<P, kPass>) {
      return pointwise_shape_of_samples(
          shapes_, p_.rows, p_.samples, p_.channels, kVec, kPacked, P::kTarget.multiprocessors);
    }
    return pointwise_shape(shapes_, p_.rows, p_.channels, kVec, kPacked, pointwise_work<P, kPass>(),
                        P::kTarget.multiprocessors);
  }

  // Whether a pass over memory may meet tensors of both orders; if it does in this call.
  template <int kPass>
  static constexpr bool kMayMeetTiles =
      (kOuterReadsOf<P, kPass> | kOuterWritesOf<P, kPass>) != 0;
  template <int kPass>
  TileShape tile_shape_of() const {
    const TileShape shape = tile_shape(
        shapes_, p_.rows, p_.positions, p_.channels, kVec, int(kVec * sizeof(typename P::T)),
        kTileBytes<P, kPass>, pointwise_work<P, kPass>(), P::kTarget.multiprocessors);
    if constexpr (!kSumsSamples<P, kPass>) return shape;
    return tile_shape_of_samples(shape, shapes_, P::kTarget.multiprocessors);
  }

  // Partial results of the column sums of a pass over memory, of each column.
  template <int kPass>
  int64_t partial_blocks() const {
    if constexpr (!kLeavesPartials<kPass>) return 0;
    if constexpr (kSumsSamples<P, kPass>) return p_.samples * sample_partials<kPass>();
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) return tile_shape_of<kPass>().grid.y;
    }
    const PointwiseShape shape = pointwise_shape_of<kPass>();
    return int64_t(shape.grid.y) * shape.period;
  }

  // Those of one sample.
  template <int kPass>
  int64_t sample_partials() const {
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) return tile_shape_of<kPass>().tiles.sample_blocks;
    }
    const PointwiseShape shape = pointwise_shape_of<kPass>();
    return shape.sample_blocks * shape.period;
  }

  // The most elements that partial results take, of passes from memory before pass kEnd.
  template <int kEnd>
  int64_t partials_before() const {
    if constexpr (kEnd == 0) {
      return 0;
    } else {
      constexpr int kPass = kEnd - 1;
      const int64_t own = partial_blocks<kPass>() * Totals<P, kPass>::kComponents * p_.channels;
      return std::max(own, partials_before<kPass>());
    }
  }

  // Takes what kernels leave each other: partial results, and what passes before kEnd leave in
  // memory. Returns whether only its size is measured: then nothing is launched.
  template <int kEnd>
  bool take_workspace(int64_t partials) {
    if (partials > 0) p_.partials = scratch_.take<typename P::Acc>(partials);
    p_.scratch([&](auto pass, auto*& pointer, Unit unit, bool always) {
      if (!always && pass >= kEnd) return;
      const int64_t count = unit == Unit::kChannel ? p_.channels
          : unit == Unit::kRow                     ? p_.rows
                                                   : p_.rows * p_.groups;
      pointer = scratch_.take<typename P::Acc>(count);
    });
    return scratch_.measures();
  }

  // The sums of a pass, and what follows from them, to memory.
  template <int kPass>
  cudaError_t reduce() {
    if constexpr (P::kUnit[kPass] == Unit::kChannel) {
      const cudaError_t error = over_memory<kPass>();
      return error != cudaSuccess ? error : finish_partials<kPass>();
    } else {
      next("row_reduction", kPass, kPass);
      return launch_row_reduction<kPass, kVec, kPacked>(p_, shapes_, vector_end_, stream_);
    }
  }
  template <int kPass>
  cudaError_t over_memory() {
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) {
        next("tile", kPass, kPass);
        const bool aligned = kPacked || vector_end_ > 0;
        return launch_tile<kPass, kVec, kPacked>(p_, tile_shape_of<kPass>(), aligned, stream_);
      }
    }
    next("pointwise", kPass, kPass);
    return launch_pointwise<kPass, kVec, kPacked>(
        p_, pointwise_shape_of<kPass>(), vector_end_, stream_);
  }
  template <int kPass>
  cudaError_t finish_partials() {
    if constexpr (kSumsSamples<P, kPass>) return finish_samples(sample_partials<kPass>());
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) {
        next("final_reduction", kPass, kPass);
        const TileShape shape = tile_shape_of<kPass>();
        if constexpr (Totals<P, kPass>::kComponents > Totals<P, kPass>::kFields) {
          return launch_final_reduction_of_tiles<kPass>(p_, shape, stream_);
        }
        return launch_final_reduction<kPass>(p_, int64_t(shape.grid.y), 0, 1, stream_);
      }
    }
    const PointwiseShape shape = pointwise_shape_of<kPass>();
    next("final_reduction", kPass, kPass);
    return launch_final_reduction<kPass>(
        p_, partial_blocks<kPass>(), shape.tiles_per_block, shape.period, stream_);
  }

  // Sums of samples, `blocks` partial results each, and what else the last pass sums.
  cudaError_t finish_samples(int64_t blocks) {
    next("sample_reduction", kLast, kLast);
    cudaError_t error = launch_sample_reduction(p_, blocks, stream_);
    int others = 0;
    p_.template results<kLast, false>([&](auto*, auto) { ++others; });
    if (error != cudaSuccess || others == 0) return error;
    next("final_reduction", kLast, kLast);
    return launch_final_reduction<kLast>(p_, p_.samples * blocks, 0, 1, stream_);
  }

  // All passes before kEnd, each from memory.
  template <int kEnd>
  cudaError_t reduce_before() {
    if constexpr (kEnd == 0) {
      return cudaSuccess;
    } else {
      const cudaError_t error = reduce_before<kEnd - 1>();
      return error != cudaSuccess ? error : reduce<kEnd - 1>();
    }
  }

  cudaError_t reduce_channels() {
    next("scalar_reduction", P::kPasses, P::kPasses);
    if constexpr (P::kReducesChannels) return launch_scalar_reduction(p_, stream_);
    return cudaSuccess;
  }

  cudaError_t row(const RowLaunch& fit) {
    constexpr bool kSums = kLeavesPartials<kLast>;
    const int64_t blocks =
        kSumsSamples<P, kLast> ? p_.samples * fit.sample_blocks : int64_t(fit.grid.y);
    const int64_t own = kSums ? blocks * Totals<P, kLast>::kComponents * p_.channels : 0;
    if (take_workspace<kFirst>(std::max(own, partials_before<kFirst>()))) return cudaSuccess;
    cudaError_t error = reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    next("row", kFirst, kLast);
    error = launch_row<kFirst, kVec, kPacked>(p_, fit, shapes_, vector_end_, stream_);
    if constexpr (kSums) {
      if (error != cudaSuccess) return error;
      if constexpr (kSumsSamples<P, kLast>) {
        error = finish_samples(fit.sample_blocks);
      } else {
        next("final_reduction", kLast, kLast);
        error = launch_final_reduction<kLast>(p_, blocks, 0, 1, stream_);
      }
    }
    return error != cudaSuccess ? error : reduce_channels();
  }

  cudaError_t column(const Column& tile) {
    if (take_workspace<kFirst>(partials_before<kFirst>())) return cudaSuccess;
    cudaError_t error = reduce_before<kFirst>();
    if (error != cudaSuccess) return error;
    next("column", kFirst, kLast);
    error = launch_column<kFirst, kVec, kPacked>(p_, tile, stream_);
    return error != cudaSuccess ? error : reduce_channels();
  }

  cudaError_t l2(const L2Shape& shape) {
    constexpr int kComponents =
        std::max(Totals<P, 0>::kComponents, Totals<P, kLast>::kComponents);
    auto* counters = scratch_.take<unsigned>(shape.tiles);
    if (take_workspace<P::kPasses>(int64_t(shape.slices) * kComponents * p_.channels)) {
      return cudaSuccess;
    }
    next("l2", 0, kLast);
    cudaError_t error = launch_l2<kVec>(p_, shape, counters, stream_);
    if constexpr (kLeavesPartials<kLast>) {
      if (error != cudaSuccess) return error;
      next("final_reduction", kLast, kLast);
      error = launch_final_reduction<kLast>(p_, int64_t(shape.slices), 0, 1, stream_);
    }
    return error != cudaSuccess ? error : reduce_channels();
  }

  cudaError_t two_pass() {
    if (take_workspace<P::kPasses>(partials_before<P::kPasses>())) return cudaSuccess;
    cudaError_t error = reduce_before<kLast>();
    if (error != cudaSuccess) return error;
    if constexpr (kHasLast) error = over_memory<kLast>();
    if constexpr (kLeavesPartials<kLast>) {
      if (error != cudaSuccess) return error;
      error = finish_partials<kLast>();
    }
    return error != cudaSuccess ? error : reduce_channels();
  }

  P p_;
  Shapes shapes_;
  int64_t vector_end_;
  Scratch& scratch_;
  cudaStream_t stream_;
};

}  // namespace fusegen
