// The plane_shared kernel: all passes over tensors that are [batch, channels, positions], with what
// they read in shared memory from the first pass on. So the memory is read once.
//
// A block has a group of the channels of one sample, or one channel where no pass reduces groups.
// Each channel has some warps, whose threads have vectors of its positions, as in the plane kernel.
// What a thread reads again it has written to shared memory itself: only sums pass between threads,
// in a fixed order. Which positions a thread has does not depend on where tensors begin.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../fetch.cuh"
#include "../launch.cuh"
#include "../plane_shapes.cuh"
#include "../reduce_lanes.cuh"
#include "column_layout.cuh"
#include "elements.cuh"
#include "plane.cuh"
#include "program.cuh"

namespace fusegen {

// Whether some pass before the last reduces groups of channels.
template <class P, int kPass = P::kPasses - 2>
constexpr bool reduces_groups() {
  if constexpr (kPass < 0) {
    return false;
  } else {
    return P::kUnit[kPass] == Unit::kSampleGroup || reduces_groups<P, kPass - 1>();
  }
}

// Sums each value over some warps that follow each other, in which all lanes get the results.
// `shared` holds 32 of each value.
template <typename Acc, typename... More>
__device__ __forceinline__ void sum_over_some_warps(
    Acc* shared, int first_warp, int warps, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
  sum_in_warp(32, first, more...);
  if (warps == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) shared[i * 32 + threadIdx.y] = *values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    *values[i] = int(threadIdx.x) < warps ? shared[i * 32 + first_warp + threadIdx.x] : Acc(0);
  }
  sum_in_warp(32, first, more...);
}

// One thread of the kernel. What passes read lies in shared memory behind what warps exchange.
// slots: room for vectors of each tensor. aligned: whether vectors may move the tensors.
template <class P, int kVec>
class PlaneSharedThread {
 public:
  using Acc = typename P::Acc;
  static constexpr int kLast = P::kPasses - 1;
  static constexpr int kExchanged = 3 * 32;  // values
  // Whether the sample reduction of the last pass's sums follows, which reads values of samples.
  static constexpr bool kStores = kSumsSamples<P, kLast>;

  __device__ __forceinline__ PlaneSharedThread(
      const P& p, int warps, int64_t slots, bool aligned)
      : p_(p), warps_(warps), slots_(slots), aligned_(aligned) {
    const int length = blockDim.y / warps, own = threadIdx.y / warps;
    const int64_t blocks = p.channels / length;  // of a sample
    sample_ = blockIdx.x / blocks;
    channel_ = (blockIdx.x - sample_ * blocks) * length + own;
    plane_ = (sample_ * p.channels + channel_) * p.positions;
    lane_ = (threadIdx.y - own * warps) * 32 + threadIdx.x;
    vectors_ = int(p.positions / kVec);
  }

  __device__ __forceinline__ void run() {
    const Columns<1, true> column{channel_, 1, true};
    set_scalars(p_, known_);
    load_channels<0, ~0u>(p_, column, true, known_);
    derive_channels(p_, known_);
    p_.template sample_tensors<0>([&](auto, auto* pointer, bool present, auto field) {
      known_[0].*field = load_value<Acc>(pointer, place(), present);
    });
    p_.derive_sample(known_[0]);
    run_from<0>();
  }

 private:
  using Vectors = typename P::template Reads<VectorsOf<kVec>::template Loaded>;

  // The place of the channel in tensors [samples, channels].
  __device__ __forceinline__ int64_t place() const { return sample_ * p_.channels + channel_; }

  template <int kPass>
  __device__ __forceinline__ void run_from() {
    typename P::template Sums<kPass, ColumnSumsOf<Acc, 1>::template Of> sums = {};
    int seen = 0;  // elements of the thread
    const int step = 32 * warps_;
    if constexpr (kPass == 0) {
#pragma unroll
      for (int u = 0; u < kPlaneSharedDepth; ++u) fetch(lane_ + u * step);
    }
    for (int index = lane_; index < vectors_; index += step) {
      if constexpr (kPass == 0) wait_for_rows<kPlaneSharedDepth - 1>();
      Vectors vectors;
      each_slot(index, vectors, [](auto& vector, auto* slot, const auto&) { vector = *slot; });
      if constexpr (kPass == 0) fetch(index + kPlaneSharedDepth * step);
      const Columns<kVec, true> positions{int64_t(index) * kVec, 1, kVec};
      use_on_plane<kPass>(p_, positions, plane_, aligned_, known_[0], vectors, sums, seen);
    }
    if constexpr (kPass < kLast) {
      constexpr bool kGroups = P::kUnit[kPass] == Unit::kSampleGroup;
      const Totals<P, kPass> total = reduced<kPass, kGroups>(sums, seen);
      p_.template follow<kPass>(known_[0], total);
      p_.template finish<kPass>(known_[0], total);
      p_.template results<kPass, !kStores>([&](auto* pointer, auto field) {
        if constexpr (kIsOfSample<decltype(field)>) {
          if (lane_ == 0 && pointer != nullptr) store_value(pointer + place(), known_[0].*field);
        }
      });
      run_from<kPass + 1>();
    } else if constexpr (Terms<P, kPass>::kFields > 0) {
      Totals<P, kPass> total = reduced<kPass, false>(sums, seen);
      store_partials(total);
    }
  }

  template <typename Field>
  static constexpr bool kIsOfSample =
      std::is_same_v<typename RecordOf<Field>::type, typename P::Sample>;

  // Calls f(vector, its slot in shared memory, where it is in memory) for each tensor that is read.
  template <typename F>
  __device__ __forceinline__ void each_slot(int index, Vectors& vectors, const F& f) const {
    const int64_t slot = int64_t(index / (32 * warps_)) * (32 * blockDim.y) + thread_index();
    auto* array = reinterpret_cast<unsigned char*>(shared_memory<Acc>() + kExchanged);
    each(
        [&](auto, auto& vector, const auto& from) {
          using Vector = std::remove_reference_t<decltype(vector)>;
          f(vector, reinterpret_cast<Vector*>(array) + slot, from + plane_ + index * kVec);
          array += slots_ * sizeof(Vector);
        },
        vectors, p_.reads);
  }

  // Begins to copy vector `index` of each tensor, if there is one.
  __device__ __forceinline__ void fetch(int index) const {
    if (index < vectors_) {
      Vectors none;
      each_slot(index, none, [&](auto&, auto* slot, const auto& from) { fetch_to(slot, from); });
    }
    end_row();
  }
  template <typename Vector, typename E>
  __device__ __forceinline__ void fetch_to(Vector* slot, const E* from) const {
    if (aligned_) {
      Incoming<E, kVec, true>().fetch(Columns<kVec, true>{0, 1, kVec}, slot, from);
    } else {
      *slot = load_single(MaskedVector<kVec>{0, 0, (1u << kVec) - 1u}, from);
    }
  }
  // The sums over the channel, or over all channels of the block.
  template <int kPass, bool kGroups, typename Sums>
  __device__ __forceinline__ Totals<P, kPass> reduced(Sums& sums, int seen) {
    const int warps = kGroups ? blockDim.y : warps_;
    const int first = kGroups ? 0 : threadIdx.y / warps_ * warps_;
    const Acc all = Acc(p_.positions * (kGroups ? blockDim.y / warps_ : 1));
    Acc* const shared = shared_memory<Acc>();
    Totals<P, kPass> totals;
    each(
        [&](auto, auto& total, auto& sum) {
          if constexpr (std::is_same_v<decltype(sum), Acc(&)[1]>) {
            sum_over_some_warps(shared, first, warps, sum[0]);
            total = sum[0];
          } else {
            Moments<Acc> moments[1] = {moments_of(sum[0], Acc(seen))};
            moments_of_parts(
                moments, [&](int) { return Acc(seen); }, [&](int) { return Acc(1) / all; },
                [&](auto&... values) { sum_over_some_warps(shared, first, warps, values[0]...); });
            total = moments[0];
          }
        },
        totals, sums);
    return totals;
  }

  // Of the last pass: one partial result for each channel of a sample.
  template <typename Total>
  __device__ __forceinline__ void store_partials(Total& total) {
    if (lane_ != 0) return;
    int64_t slot = sample_ * Total::kComponents;
    const auto store = [&](Acc value) { p_.partials[slot++ * p_.channels + channel_] = value; };
    each(
        [&](auto, const auto& sum) {
          if constexpr (std::is_same_v<std::decay_t<decltype(sum)>, Acc>) {
            store(sum);
          } else {
            store(sum.mean);
            store(sum.m2);
          }
        },
        total);
  }

  const P& p_;
  const int warps_;  // of a channel
  const int64_t slots_;
  const bool aligned_;
  int64_t sample_, channel_, plane_;
  int lane_;     // among the threads of the channel
  int vectors_;  // of a plane
  Known<P> known_[1];
};

template <class P, int kVec>
__global__ void __launch_bounds__(kPlaneSharedThreads)
    plane_shared_kernel(
        const __grid_constant__ P p, int warps, int64_t slots, bool aligned) {
  wait_for_earlier_kernels();
  PlaneSharedThread<P, kVec>(p, warps, slots, aligned).run();
}

}  // namespace fusegen
