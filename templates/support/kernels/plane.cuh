// The plane kernel: one pass over memory in which all tensors of all elements are [batch, channels,
// positions].
//
// A thread has vectors of neighbouring positions of one channel, of one image after the other. So
// it loads the values of its channel once, and sums them by itself; the threads that share the
// channel are neighbours in a warp. Nothing goes through shared memory. Where images have no whole
// vectors, a thread has single positions, whose neighbours the neighbouring threads have. Which
// positions a thread has does not depend on where tensors begin: neither do the sums' bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../plane_shapes.cuh"
#include "../reduce_lanes.cuh"
#include "elements.cuh"
#include "program.cuh"
#include "tile_arrays.cuh"

namespace fusegen {

// Computes the elements of a vector, which lie in the plane of a channel that begins at `plane`,
// adds their terms to the thread's sums of `seen` elements, and stores results in the last pass.
// aligned: whether packed vectors may move the tensors.
template <int kPass, class P, int kVec, bool kPacked, typename Vectors, typename Sums>
__device__ __forceinline__ void use_on_plane(
    const P& p, const Columns<kVec, kPacked>& positions, int64_t plane, bool aligned,
    Known<P>& known, const Vectors& vectors, Sums& sums, int& seen) {
  constexpr bool kStores = kPass == P::kPasses - 1;
  [[maybe_unused]] typename P::template Writes<VectorsOf<kVec>::template Stored> out;
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    if (!positions.has(v)) continue;
    Elements<P> x{};
    each(TakeElement<P::kReadBy[kPass]>{v}, x, vectors);
    typename P::Cached cached;
    Terms<P, kPass> term;
    Results<P> y;
    p.template element<kPass, 0u>(x, known, cached, term, y);
    each(AddElement{0, seen == 0}, sums, term);
    ++seen;
    if constexpr (kStores) each(PutElement{v}, out, y);
  }
  if constexpr (kStores) {
    each(
        [&](auto i, const auto& vector, const auto& to) {
          constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
          if (kMayLack && to == nullptr) return;
          if (kPacked && !aligned) {
#pragma unroll
            for (int v = 0; v < kVec; ++v) to[plane + positions.at(v)] = vector[v];
          } else {
            store_pack(positions, to + plane, vector);
          }
        },
        out, p.writes);
  }
}

// One thread of the kernel. kPacked: an image has whole vectors; aligned: they are in memory, too.
template <class P, int kPass, int kVec, bool kPacked>
class PlaneThread {
 public:
  using Acc = typename P::Acc;

  __device__ __forceinline__ PlaneThread(const P& p, const ImageTiles& tiles, bool aligned)
      : p_(p),
        tiles_(tiles),
        aligned_(aligned),
        channel_(int64_t(blockIdx.x) * blockDim.y + threadIdx.y) {}

  __device__ __forceinline__ void run() {
    const bool active = channel_ < p_.channels;
    const Columns<1, true> column{channel_, 1, active};
    set_scalars(p_, known_);
    load_channels<kPass, 1u << kPass>(p_, column, active, known_);
    derive_channels(p_, known_);
    if constexpr (kBySamples<P, kPass>) {
      const unsigned shares = unsigned(tiles_.sample_blocks), part = blockIdx.y % shares;
      const int64_t rest = tiles_.per_image - part * tiles_.per_block;
      for (int64_t sample = blockIdx.y / shares; sample < p_.samples;
           sample += gridDim.y / shares) {
        sums_ = {};
        seen_ = 0;
        image_ = sample;
        tile_ = part * tiles_.per_block;
        set_samples<kPass>(p_, column, active, sample, known_);
        run_all(active ? (rest < tiles_.per_block ? rest : tiles_.per_block) : 0);
        if constexpr (Terms<P, kPass>::kFields > 0) {
          leave_sums(active, sample * shares + part, tiles_.sample_rows().of_block(part));
        }
      }
    } else {
      const int64_t begin = blockIdx.y * tiles_.per_block;
      const int64_t end =
          begin + tiles_.per_block < tiles_.count ? begin + tiles_.per_block : tiles_.count;
      image_ = begin / tiles_.per_image;
      tile_ = begin - image_ * tiles_.per_image;
      run_all(active ? end - begin : 0);
      if constexpr (Terms<P, kPass>::kFields > 0) {
        leave_sums(active, blockIdx.y, tiles_.rows_of_block(blockIdx.y));
      }
    }
  }

 private:
  using Vectors = typename P::template Reads<VectorsOf<kVec, kPacked>::template Loaded>;
  using Positions = Columns<kVec, kPacked>;
  using Sums = typename P::template Sums<kPass, ColumnSumsOf<Acc, 1>::template Of>;

  // So many tiles, from tile_ of image_ on.
  __device__ __forceinline__ void run_all(int64_t left) {
    for (; left > 0; left -= kPlaneVectors) {
      run_tiles(left < kPlaneVectors ? int(left) : kPlaneVectors);
    }
  }

  // The next tiles, at most kPlaneVectors of them. All loads are in flight together.
  __device__ __forceinline__ void run_tiles(int count) {
    Vectors vectors[kPlaneVectors];
    Positions positions[kPlaneVectors];
    int64_t plane[kPlaneVectors];
#pragma unroll
    for (int u = 0; u < kPlaneVectors; ++u) {
      positions[u] = {};
      if (u >= count) continue;
      plane[u] = (image_ * p_.channels + channel_) * tiles_.positions;
      positions[u] = columns_of<kVec, kPacked>(
          tile_ * tiles_.size(), tiles_.positions, threadIdx.x, blockDim.x);
      if (positions[u].any()) {
        each(LoadOuter{positions[u], plane[u], aligned_}, vectors[u], p_.reads);
      }
      if (++tile_ == tiles_.per_image) {
        tile_ = 0;
        ++image_;
      }
    }
#pragma unroll
    for (int u = 0; u < kPlaneVectors; ++u) {
      if (!positions[u].any()) continue;
      use_on_plane<kPass>(
          p_, positions[u], plane[u], aligned_, known_[0], vectors[u], sums_, seen_);
    }
  }

  struct LoadOuter {
    const Positions& positions;
    int64_t plane;
    bool aligned;

    template <int kField, typename Vector, typename Pointer>
    __device__ __forceinline__ void operator()(
        Index<kField>, Vector& vector, const Pointer& from) const {
      if constexpr (has_bit(P::kReadBy[kPass], kField)) {
        if constexpr (kPacked) {
          if (!aligned) {
            constexpr MaskedVector<kVec> kAll{0, 0, (1u << kVec) - 1u};
            vector = load_single(kAll, from + plane + positions.first);
            return;
          }
        }
        vector = load_pack(positions, from + plane);
      }
    }
  };

  // Stores the sums of the threads that share the channel, of `all` rows, as partial results number
  // `block`.
  __device__ __forceinline__ void leave_sums(bool active, int64_t block, int64_t all) {
    int64_t slot = block * Terms<P, kPass>::kComponents;
    const auto store = [&](Acc value) {
      if (active && threadIdx.x == 0) p_.partials[slot * p_.channels + channel_] = value;
      ++slot;
    };
    each(
        [&](auto, auto& sum) {
          if constexpr (std::is_same_v<decltype(sum), Acc(&)[1]>) {
            sum_in_warp(blockDim.x, sum[0]);
            store(sum[0]);
          } else {
            Moments<Acc> moments[1] = {moments_of(sum[0], Acc(seen_))};
            moments_of_parts(
                moments, [&](int) { return Acc(seen_); }, [&](int) { return Acc(1) / Acc(all); },
                [](auto&... values) { sum_in_warp(blockDim.x, values[0]...); });
            store(moments[0].mean);
            store(moments[0].m2);
          }
        },
        sums_);
  }

  const P& p_;
  const ImageTiles& tiles_;
  const bool aligned_;
  const int64_t channel_;
  int64_t image_, tile_;  // of the next tile
  int seen_ = 0;          // elements of the thread, so far
  Known<P> known_[1];
  Sums sums_ = {};
};

template <class P, int kPass, int kVec, bool kPacked>
__global__ void __launch_bounds__(kPlaneThreads)
    plane_kernel(
        const __grid_constant__ P p, const __grid_constant__ ImageTiles tiles, bool aligned) {
  wait_for_earlier_kernels();
  PlaneThread<P, kPass, kVec, kPacked>(p, tiles, aligned).run();
}

// aligned: whether vectors may move the tensors.
template <int kPass, int kVec, class P>
cudaError_t launch_plane(const P& p, const TileShape& shape, bool aligned, cudaStream_t stream) {
  return launch(
      p.positions % kVec == 0 ? plane_kernel<P, kPass, kVec, true>
                              : plane_kernel<P, kPass, kVec, false>,
      shape.grid, shape.block, 0, stream, p, shape.tiles, aligned);
}

}  // namespace fusegen
