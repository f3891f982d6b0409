// A small program for tile and plane kernels. In both passes it has values of channels, and for tile
// kernels tensors of both orders and values of rows; moments beside a plain sum in the first, stored
// elements and a sum in the last.
#include <cstdint>

#include "../support/kernels/final_reduction.cuh"
#include "../support/kernels/final_reduction_of_parts.cuh"
#include "../support/kernels/plane.cuh"
#include "../support/kernels/pointwise.cuh"
#include "../support/kernels/tile.cuh"
#include "records.cuh"

namespace toy {
using namespace fusegen;

constexpr int kMultiprocessors = 8;

// h = (x + bias) * scale + z, its moments and its sum over the rows; then y = (h - mean) * inverse
// and its sum, and w = x * z. z, in another type, and y are [batch, channels, positions]; with kPlanes
// x and w are, too, and the scale is 1.
template <typename T_, typename Z, bool kPlanes>
struct Tiles : Program {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr int kPasses = 2;
  static constexpr Unit kUnit[] = {Unit::kChannel, Unit::kChannel};
  static constexpr unsigned kReadBy[] = {0b11, 0b11};
  static constexpr unsigned kOuterReads = kPlanes ? 0b11 : 0b10;
  static constexpr unsigned kOuterWrites = kPlanes ? 0b11 : 0b01, kOptionalWrites = 0b11;
  static constexpr int kRowTensorsBy[] = {!kPlanes, !kPlanes};

  FUSEGEN_RECORD(Reads, Read, (x_v, T) (z_v, Z))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, T) (w_v, T))
  Writes<WritePointer> writes;  // may be null
  const T* bias_ptr;            // [channels]
  Acc* mean_ptr;
  Acc* inverse_ptr;
  Acc* sum_ptr;
  Acc* y_sum_ptr;
  const T* scale_ptr;  // [rows]
  Acc* partials;

  struct Channel {
    Acc bias_v, mean_v, inverse_v, sum_v, y_sum_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F& f) const {
    f(Uses<0b11>(), bias_ptr, true, &Channel::bias_v);
    if constexpr (kFrom > 0) {
      f(Uses<0b10>(), mean_ptr, true, &Channel::mean_v);
      f(Uses<0b10>(), inverse_ptr, true, &Channel::inverse_v);
    }
  }
  struct Row {
    Acc scale_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F& f) const {
    if constexpr (!kPlanes) f(Uses<0b11>(), scale_ptr, true, &Row::scale_v);
  }

  FUSEGEN_SUMS(SumAndMoments, (sum_v, Sum) (moments_v, MeanAndSquares))
  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<kPass == 0, SumAndMoments<Of>, OneSum<Of>>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  FUSEGEN_DEVICE void element(const X& x, const K& k, Nothing&, S& term, Y& y) const {
    const Acc h_v = (x.x_v + k.bias_v) * (kPlanes ? Acc(1) : k.scale_v) + x.z_v;
    if constexpr (kPass == 0) {
      term.moments_v = h_v;
      term.sum_v = h_v;
    } else {
      y.y_v = (h_v - k.mean_v) * k.inverse_v;
      y.w_v = x.x_v * x.z_v;
      term.sum_v = y.y_v * y.y_v;
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void follow(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.mean_v = total.moments_v.mean;
      k.inverse_v = Acc(1) / (Acc(1) + total.moments_v.m2 / Acc(rows));
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void finish(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.sum_v = total.sum_v;
    } else {
      k.y_sum_v = total.sum_v;
    }
  }
  template <int kPass, bool kResident, typename F>
  FUSEGEN_BOTH void results(const F& f) const {
    if constexpr (kPass == 0) {
      f(mean_ptr, &Channel::mean_v);
      f(inverse_ptr, &Channel::inverse_v);
      f(sum_ptr, &Channel::sum_v);
    } else {
      f(y_sum_ptr, &Channel::y_sum_v);
    }
  }
};

template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_pass(const P& p, const Shapes& shapes, bool aligned) {
  constexpr auto kWork = pointwise_work<P, kPass>();
  TileShape shape;
  cudaError_t error;
  if constexpr (kOnPlanes<P, kPass>) {
    shape = plane_shape(
        shapes, p.rows, p.positions, p.channels, kVec, kWork, kMultiprocessors);
    error = launch_plane<kPass, kVec>(p, shape, aligned, nullptr);
  } else {
    shape = tile_shape(
        shapes, p.rows, p.positions, p.channels, kVec, int(kVec * sizeof(typename P::T)),
        kTileBytes<P, kPass>, kWork, kMultiprocessors);
    error = launch_tile<kPass, kVec, kPacked>(p, shape, aligned, nullptr);
  }
  if (error != cudaSuccess) return error;
  if constexpr (kPass == 0) {
    return launch_final_reduction_of_parts<kPass>(
        p, shape.grid.y, RowsOfTiles{shape.tiles}, nullptr);
  }
  return launch_final_reduction<kPass>(p, int64_t(shape.grid.y), 0, 1, nullptr);
}

template <int kVec, bool kPacked, class P>
cudaError_t launch_both(const P& p, const Shapes& shapes, bool aligned) {
  const cudaError_t error = launch_pass<0, kVec, kPacked>(p, shapes, aligned);
  return error != cudaSuccess ? error : launch_pass<1, kVec, kPacked>(p, shapes, aligned);
}

template <bool kPlanes, typename T, typename Z, int kArrays, typename Acc = Accumulate<T>>
cudaError_t tiles(
    const void* x, const void* z, const void* bias, const void* scale, void* y, void* w, void* mean,
    void* inverse, void* sum, void* y_sum, void* partials, int64_t batch, int64_t positions,
    int64_t channels, int64_t blocks) {
  Tiles<T, Z, kPlanes> p{};
  static_cast<Sizes&>(p) = {batch * positions, channels, 1, channels, positions};
  p.reads = {static_cast<const T*>(x), static_cast<const Z*>(z)};
  p.writes = {static_cast<T*>(y), static_cast<T*>(w)};
  p.bias_ptr = static_cast<const T*>(bias);
  p.scale_ptr = static_cast<const T*>(scale);
  p.mean_ptr = static_cast<Acc*>(mean);
  p.inverse_ptr = static_cast<Acc*>(inverse);
  p.sum_ptr = static_cast<Acc*>(sum);
  p.y_sum_ptr = static_cast<Acc*>(y_sum);
  p.partials = static_cast<Acc*>(partials);
  Shapes shapes;
  shapes.pointwise_blocks = blocks;
  constexpr int kVec = kVectorOf<T, kArrays>;
  const bool aligned = aligned_to_16(x, z, y, w);
  const bool packed = aligned && aligned_to_16(bias) && channels % kVec == 0;
  return packed ? launch_both<kVec, true>(p, shapes, aligned)
                : launch_both<kVec, false>(p, shapes, aligned);
}

}  // namespace toy

// kind: the types of x and z, and with it how many columns a thread has; from 4 on with kPlanes.
extern "C" int tiles(
    int kind, const void* x, const void* z, const void* bias, const void* scale, void* y, void* w,
    void* mean, void* inverse, void* sum, void* y_sum, void* partials, int64_t batch,
    int64_t positions, int64_t channels, int64_t blocks) {
  using BF16 = __nv_bfloat16;
  constexpr decltype(&toy::tiles<false, float, float, 3>) kAll[] = {
      toy::tiles<false, float, float, 3>,   toy::tiles<false, BF16, BF16, 3>,
      toy::tiles<false, BF16, float, 5>,    toy::tiles<false, double, double, 3>,
      toy::tiles<true, float, float, 3>,    toy::tiles<true, BF16, BF16, 3>,
      toy::tiles<true, BF16, float, 5>,     toy::tiles<true, double, double, 3>};
  return kAll[kind](x, z, bias, scale, y, w, mean, inverse, sum, y_sum, partials, batch, positions,
                    channels, blocks);
}
