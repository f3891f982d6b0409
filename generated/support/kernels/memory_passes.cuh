// The kernels of passes over memory, and what they leave each other: one reduction after the other,
// of any size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../devices.cuh"
#include "../explain.cuh"
#include "../launch.cuh"
#include "../shapes.cuh"
#include "pointwise.cuh"
#include "program.cuh"

namespace fusegen {

// Of headers of these names, which kernels.cu includes where its programs have such kernels.
template <int kPass, class P>
cudaError_t launch_final_reduction(
    const P& p, int64_t blocks, int64_t tiles_per_block, int period, cudaStream_t stream);
template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_row_reduction(
    const P& p, const LaunchContext& context);
template <int kPass, class P, class RowsOf>
cudaError_t launch_final_reduction_of_parts(
    const P& p, int64_t blocks, const RowsOf& rows_of, cudaStream_t stream);
template <int kPass, class P>
cudaError_t launch_sample_reduction(const P& p, const SampleRows& rows, cudaStream_t stream);
template <class P>
cudaError_t launch_scalar_reduction(const P& p, cudaStream_t stream);
template <int kPass, int kVec, class P>
cudaError_t launch_pooled(const P& p, const LaunchContext& context);
struct TileShape;

// The kernel that is launched next, for an explanation.
inline void explain_next(const char* kernel, int first_pass, int last_pass) {
  if (explanation != nullptr) explanation->next(kernel, first_pass, last_pass);
}

// Whether a pass leaves partial results of columns.
template <class P, int kPass>
inline constexpr bool kLeavesPartials =
    (P::kUnit[kPass] == Unit::kChannel || kSumsSamples<P, kPass>) && Totals<P, kPass>::kFields > 0;

// Whether any pass up to kPass does.
template <class P, int kPass = P::kPasses - 1>
constexpr bool leaves_partials() {
  if constexpr (kPass < 0) {
    return false;
  } else {
    return kLeavesPartials<P, kPass> || leaves_partials<P, kPass - 1>();
  }
}

// The passes of one call of a program, with vectors of kVec elements; packed: all rows and groups
// begin with one.
template <class P, int kVec, bool kPacked>
class MemoryPasses {
 public:
  MemoryPasses(P& program, const LaunchContext& context, Scratch& scratch)
      : p_(program), context_(context), scratch_(scratch) {}

  // With what has been taken of the workspace so far.
  const P& program() const { return p_; }
  const LaunchContext& context() const { return context_; }
  Scratch& scratch() { return scratch_; }

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
    if constexpr (leaves_partials<P>()) {
      if (partials > 0) p_.partials = scratch_.take<typename P::Acc>(partials);
    }
    p_.scratch([&](auto pass, auto*& pointer, Unit unit, bool always) {
      if (!always && pass >= kEnd) return;
      const int64_t count = unit == Unit::kChannel ? p_.channels
          : unit == Unit::kRow                     ? p_.rows
          : unit == Unit::kGroup                   ? p_.rows * p_.groups
                                                   : p_.samples * p_.channels;
      pointer = scratch_.take<typename P::Acc>(count);
    });
    return scratch_.measures();
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

  // A pass whose values are of full size.
  template <int kPass>
  cudaError_t over_memory() {
    if constexpr (P::kPooling != Pooling::kNone && kPass == kLast) {
      explain_next("pooled", kPass, kPass);
      return launch_pooled<kPass, kPacked ? kVec : 1>(p_, context_);
    } else {
      if constexpr (kMayMeetTiles<kPass>) {
        if (p_.positions > 0) return over_tiles<kPass>();
      }
      explain_next("pointwise", kPass, kPass);
      return launch_pointwise<kPass, kOwnVec<kPass>, kPacked>(
          p_, pointwise_shape_of<kPass>(), context_.vector_end, context_.stream);
    }
  }

  // What is behind a pass that leaves partial results.
  template <int kPass>
  cudaError_t finish_partials() {
    if constexpr (kBySamples<P, kPass>) return finish_samples<kPass>(sample_rows<kPass>());
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) return finish_tiles<kPass>();
    }
    const PointwiseShape shape = pointwise_shape_of<kPass>();
    explain_next("final_reduction", kPass, kPass);
    return launch_final_reduction<kPass>(
        p_, partial_blocks<kPass>(), shape.tiles_per_block, shape.period, context_.stream);
  }

  // What a pass by samples sums, of samples and of all rows. rows: of the partial results of one.
  template <int kPass>
  cudaError_t finish_samples(const SampleRows& rows) {
    if constexpr (kSumsSamples<P, kPass>) {
      explain_next("sample_reduction", kPass, kPass);
      const cudaError_t error = launch_sample_reduction<kPass>(p_, rows, context_.stream);
      int columns = 0;
      p_.template results<kPass, false>([&](auto*, auto field) {
        columns += std::is_same_v<typename RecordOf<decltype(field)>::type, typename P::Channel>;
      });
      if (error != cudaSuccess || columns == 0) return error;
    }
    explain_next("final_reduction", kPass, kPass);
    return launch_final_reduction_of_parts<kPass>(
        p_, p_.samples * rows.partials(), rows, context_.stream);
  }

  cudaError_t reduce_channels() {
    explain_next("scalar_reduction", P::kPasses, P::kPasses);
    if constexpr (P::kReducesChannels) return launch_scalar_reduction(p_, context_.stream);
    return cudaSuccess;
  }

 private:
  static constexpr int kLast = P::kPasses - 1;

  // Of the pointwise kernel.
  template <int kPass>
  static constexpr int kOwnVec = pointwise_vector<P, kPass, kVec>();

  template <int kPass>
  PointwiseShape pointwise_shape_of() const {
    if constexpr (kBySamples<P, kPass>) {
      return pointwise_shape_of_samples(
          context_.shapes, p_.rows, p_.samples, p_.channels, kOwnVec<kPass>, kPacked,
          pointwise_work<P, kPass>(), context_.target.multiprocessors);
    }
    return pointwise_shape(
        context_.shapes, p_.rows, p_.channels, kVec, kPacked, pointwise_work<P, kPass>(),
        context_.target.multiprocessors);
  }

  // Whether a pass over memory may meet outer tensors; if it does in this call.
  template <int kPass>
  static constexpr bool kMayMeetTiles =
      (kOuterReadsOf<P, kPass> | kOuterWritesOf<P, kPass>) != 0;

  // Such a pass, in tile_passes.cuh: its launch, what is behind it, its partial results of each
  // column, and the rows of those of a sample.
  template <int kPass>
  cudaError_t over_tiles();
  template <int kPass>
  cudaError_t finish_tiles();
  template <int kPass>
  int64_t tile_partials() const;
  template <int kPass>
  SampleRows tile_sample_rows() const;
  template <int kPass>
  TileShape tile_shape_of() const;

  // Partial results of the column sums of a pass over memory, of each column.
  template <int kPass>
  int64_t partial_blocks() const {
    if constexpr (!kLeavesPartials<P, kPass>) return 0;
    if constexpr (kBySamples<P, kPass>) return p_.samples * sample_rows<kPass>().partials();
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) return tile_partials<kPass>();
    }
    const PointwiseShape shape = pointwise_shape_of<kPass>();
    return int64_t(shape.grid.y) * shape.period;
  }

  // The rows of those of one sample.
  template <int kPass>
  SampleRows sample_rows() const {
    if constexpr (kMayMeetTiles<kPass>) {
      if (p_.positions > 0) return tile_sample_rows<kPass>();
    }
    const PointwiseShape shape = pointwise_shape_of<kPass>();
    return {shape.sample_blocks, shape.tiles_per_block, p_.sample_rows, shape.period};
  }

  // The sums of a pass, and what follows from them, to memory.
  template <int kPass>
  cudaError_t reduce() {
    if constexpr (P::kUnit[kPass] == Unit::kChannel || kSumsSamples<P, kPass>) {
      const cudaError_t error = over_memory<kPass>();
      return error != cudaSuccess ? error : finish_partials<kPass>();
    } else {
      explain_next("row_reduction", kPass, kPass);
      return launch_row_reduction<kPass, kVec, kPacked>(p_, context_);
    }
  }

  P& p_;
  const LaunchContext& context_;
  Scratch& scratch_;
};

}  // namespace fusegen
