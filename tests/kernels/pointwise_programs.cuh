// Two small programs for the kernels of the two-pass schedule, and what launches all of these.
//
// They use everything that these kernels offer at once: values of channels, rows and groups, loaded
// and derived; moments beside an odd number of plain sums; a tensor that only one pass reads; one
// that only finish() reads; results that are not stored.
#include <cstdint>

#include "../support/kernels/final_reduction.cuh"
#include "../support/kernels/pointwise.cuh"
#include "../support/kernels/row_reduction.cuh"
#include "../support/kernels/scalar_reduction.cuh"
#include "records.cuh"

namespace toy {
using namespace fusegen;

constexpr Target kSmall{90, 8, 232448, 1 << 25, 8};

template <typename Acc>
__host__ __device__ Acc magnitude(Acc x) { return x < Acc(0) ? -x : x; }

struct Base : Program {
  static constexpr int kPasses = 2;
};

FUSEGEN_SUMS(TwoSums, (total_v, Sum) (weighted_v, Sum))

// h = (x + bias + 1) * scale / 2 + 2 * offset, its sums over the rows; then
// y = ((x + bias + 1) * scale / 2 - mean) * inverse + z, its sum over the rows, and sums of that.
template <typename T_>
struct Columns : Base {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr Unit kUnit[] = {Unit::kChannel, Unit::kChannel};
  static constexpr unsigned kReadBy[] = {0b01, 0b11};
  static constexpr int kRowTensorsBy[] = {1, 1}, kGroupTensorsBy[] = {1, 0};
  static constexpr bool kReducesChannels = true;

  FUSEGEN_RECORD(Reads, Read, (x_v, T) (z_v, T))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, T))
  Writes<WritePointer> writes;  // may be null
  static constexpr unsigned kOptionalWrites = ~0u;
  // [channels]
  const T* bias_ptr;
  const T* shift_ptr;  // may be null
  Acc* mean_ptr;
  Acc* inverse_ptr;
  Acc* square_ptr;
  T* sum_ptr;
  Acc* magnitude_ptr;  // may be null
  Acc* y_sum_ptr;
  // [rows], [rows, groups]
  const T* scale_ptr;
  const Acc* offset_ptr;
  // [1]
  Acc* total_ptr;
  Acc* weighted_ptr;
  int64_t* count_ptr;
  Acc* partials;

  struct Scalars {
    Acc half_v, total_v, weighted_v;
  };
  __device__ Scalars scalars() const { return {Acc(0.5), Acc(0), Acc(0)}; }
  struct Channel {
    Acc bias_v, shift_v, moved_bias_v;
    Acc mean_v, inverse_v, square_v, sum_v, magnitude_v, y_sum_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F& f) const {
    f(Uses<0b111>(), bias_ptr, true, &Channel::bias_v);
    f(Uses<0b000>(), shift_ptr, shift_ptr != nullptr, &Channel::shift_v);
    if constexpr (kFrom > 0) {
      f(Uses<0b010>(), mean_ptr, true, &Channel::mean_v);
      f(Uses<0b010>(), inverse_ptr, true, &Channel::inverse_v);
    }
    if constexpr (kFrom > 1) f(Uses<0b100>(), y_sum_ptr, true, &Channel::y_sum_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_channel(K& k) const { k.moved_bias_v = k.bias_v + Acc(1); }
  struct Row {
    Acc scale_v, half_scale_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F& f) const {
    f(Uses<0b11>(), scale_ptr, true, &Row::scale_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_row(K& k) const { k.half_scale_v = k.scale_v * k.half_v; }
  struct Group {
    Acc offset_v, twice_offset_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void group_tensors(const F& f) const {
    f(Uses<0b01>(), offset_ptr, true, &Group::offset_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_group(K& k) const { k.twice_offset_v = Acc(2) * k.offset_v; }

  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<
      kPass == 0, SumsAndMoments<Of>, std::conditional_t<kPass == 1, OneSum<Of>, TwoSums<Of>>>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  FUSEGEN_DEVICE void element(const X& x, const K& k, Nothing&, S& term, Y& y) const {
    const Acc scaled_v = (x.x_v + k.moved_bias_v) * k.half_scale_v;
    if constexpr (kPass == 0) {
      const Acc h_v = scaled_v + k.twice_offset_v;
      term.first_sum_v = h_v * h_v;
      term.moments_v = h_v;
      term.second_sum_v = h_v;
      term.third_sum_v = magnitude(h_v);
    } else {
      y.y_v = (scaled_v - k.mean_v) * k.inverse_v + x.z_v;
      term.sum_v = y.y_v;
    }
  }
  template <typename K>
  FUSEGEN_DEVICE void channel_terms(const K& k, TwoSums<TermsIn<Acc>::template Of>& term) const {
    term.total_v = k.y_sum_v;
    term.weighted_v = k.y_sum_v * k.moved_bias_v;
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
      k.square_v = total.first_sum_v + k.shift_v;
      k.sum_v = total.second_sum_v;
      k.magnitude_v = total.third_sum_v + k.moved_bias_v;
    } else if constexpr (kPass == 1) {
      k.y_sum_v = total.sum_v;
    } else {
      k.total_v = total.total_v * k.half_v;
      k.weighted_v = total.weighted_v;
    }
  }
  template <int kPass, bool kResident, typename F>
  FUSEGEN_BOTH void results(const F& f) const {
    if constexpr (kPass == 0) {
      f(square_ptr, &Channel::square_v);
      f(sum_ptr, &Channel::sum_v);
      f(magnitude_ptr, &Channel::magnitude_v);
      if constexpr (!kResident) {
        f(mean_ptr, &Channel::mean_v);
        f(inverse_ptr, &Channel::inverse_v);
      }
    } else if constexpr (kPass == 1) {
      f(y_sum_ptr, &Channel::y_sum_v);
    } else {
      f(total_ptr, &Scalars::total_v);
      f(weighted_ptr, &Scalars::weighted_v);
    }
  }
  template <int kPass>
  __device__ void count() const {
    if constexpr (kPass == 0) ++*count_ptr;
  }
};

// h = x * 2 weight + scale / 2 + offset * 2, its sums over each row or group; then y = h - mean.
template <typename T_, Unit kSegment>
struct Rows : Base {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr Unit kUnit[] = {kSegment, Unit::kNone};
  static constexpr unsigned kReadBy[] = {0b01, 0b01};
  static constexpr int kRowTensorsBy[] = {1, kSegment == Unit::kRow ? 2 : 1};
  static constexpr int kGroupTensorsBy[] = {1, kSegment == Unit::kRow ? 1 : 2};

  FUSEGEN_RECORD(Reads, Read, (x_v, T))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, T))
  Writes<WritePointer> writes;
  static constexpr unsigned kOptionalWrites = ~0u;
  const T* weight_ptr;    // [channels]
  const Acc* bias_ptr;    // [channels], may be null
  const T* scale_ptr;     // [rows]
  const Acc* offset_ptr;  // [rows, groups]
  // One value for each row or group.
  Acc* mean_ptr;
  Acc* m2_ptr;
  Acc* square_ptr;
  T* sum_ptr;
  Acc* magnitude_ptr;  // may be null
  Acc* partials;

  struct Scalars {
    Acc two_v;
  };
  __device__ Scalars scalars() const { return {Acc(2)}; }
  struct Channel {
    Acc weight_v, bias_v, twice_weight_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F& f) const {
    f(Uses<0b11>(), weight_ptr, true, &Channel::weight_v);
    f(Uses<0b11>(), bias_ptr, bias_ptr != nullptr, &Channel::bias_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_channel(K& k) const { k.twice_weight_v = k.two_v * k.weight_v; }
  struct Found {
    Acc mean_v, m2_v, square_v, sum_v, magnitude_v;
  };
  struct Nowhere {};
  struct Row : std::conditional_t<kSegment == Unit::kRow, Found, Nowhere> {
    Acc scale_v, half_scale_v;
  };
  struct Group : std::conditional_t<kSegment == Unit::kGroup, Found, Nowhere> {
    Acc offset_v, twice_offset_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F& f) const {
    f(Uses<0b11>(), scale_ptr, true, &Row::scale_v);
    if constexpr (kFrom > 0 && kSegment == Unit::kRow) {
      f(Uses<0b10>(), mean_ptr, true, &Row::mean_v);
    }
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_row(K& k) const { k.half_scale_v = k.scale_v / k.two_v; }
  template <int kFrom, typename F>
  FUSEGEN_BOTH void group_tensors(const F& f) const {
    f(Uses<0b11>(), offset_ptr, true, &Group::offset_v);
    if constexpr (kFrom > 0 && kSegment == Unit::kGroup) {
      f(Uses<0b10>(), mean_ptr, true, &Group::mean_v);
    }
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_group(K& k) const { k.twice_offset_v = k.two_v * k.offset_v; }

  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<kPass == 0, SumsAndMoments<Of>, Nothing>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  FUSEGEN_DEVICE void element(const X& x, const K& k, Nothing&, S& term, Y& y) const {
    const Acc h_v = x.x_v * k.twice_weight_v + k.bias_v + k.half_scale_v + k.twice_offset_v;
    if constexpr (kPass == 0) {
      term.first_sum_v = h_v * h_v;
      term.moments_v = h_v;
      term.second_sum_v = h_v;
      term.third_sum_v = magnitude(h_v);
    } else {
      y.y_v = h_v - k.mean_v;
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void follow(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.mean_v = total.moments_v.mean;
      k.m2_v = total.moments_v.m2;
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void finish(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.square_v = total.first_sum_v;
      k.sum_v = total.second_sum_v;
      k.magnitude_v = total.third_sum_v + k.half_scale_v;
    }
  }
  template <int kPass, bool kResident, typename F>
  FUSEGEN_BOTH void results(const F& f) const {
    if constexpr (kPass == 0) {
      f(square_ptr, &Known<Rows>::square_v);
      f(sum_ptr, &Known<Rows>::sum_v);
      f(magnitude_ptr, &Known<Rows>::magnitude_v);
      f(m2_ptr, &Known<Rows>::m2_v);
      if constexpr (!kResident) f(mean_ptr, &Known<Rows>::mean_v);
    }
  }
};

template <int kVec, bool kPacked, typename T>
cudaError_t launch_all(const Columns<T>& p, const Shapes& shapes, int64_t vector_end) {
  const auto shape_of = [&](PointwiseWork work) {
    return pointwise_shape(
        shapes, p.rows, p.channels, kVec, kPacked, work, kSmall.multiprocessors);
  };
  const PointwiseShape first = shape_of(pointwise_work<Columns<T>, 0>());
  const PointwiseShape last = shape_of(pointwise_work<Columns<T>, 1>());
  cudaError_t error = launch_pointwise<0, kVec, kPacked>(p, first, vector_end, nullptr);
  if (error != cudaSuccess) return error;
  error = launch_final_reduction<0>(
      p, int64_t(first.grid.y) * first.period, first.tiles_per_block, first.period, nullptr);
  if (error != cudaSuccess) return error;
  error = launch_pointwise<1, kVec, kPacked>(p, last, vector_end, nullptr);
  if (error != cudaSuccess) return error;
  error = launch_final_reduction<1>(p, int64_t(last.grid.y) * last.period, 0, 1, nullptr);
  if (error != cudaSuccess) return error;
  return launch_scalar_reduction(p, nullptr);
}

template <int kVec, bool kPacked, typename T, Unit kSegment>
cudaError_t launch_all(const Rows<T, kSegment>& p, const Shapes& shapes, int64_t vector_end) {
  const PointwiseShape last = pointwise_shape(
      shapes, p.rows, p.channels, kVec, kPacked, pointwise_work<Rows<T, kSegment>, 1>(),
      kSmall.multiprocessors);
  const cudaError_t error = launch_row_reduction<0, kVec, kPacked>(
      p, LaunchContext{shapes, kSmall, p.rows, vector_end, nullptr});
  if (error != cudaSuccess) return error;
  return launch_pointwise<1, kVec, kPacked>(p, last, vector_end, nullptr);
}

// aligned: whether all tensors begin at multiples of 16 bytes.
template <class P>
cudaError_t launch_all(const P& p, const Shapes& shapes, bool aligned) {
  constexpr int kVec = kVectorOf<typename P::T, 3>;
  const bool packed = aligned && p.channels % kVec == 0 && p.group_length % kVec == 0;
  if (packed) return launch_all<kVec, true>(p, shapes, int64_t(0));
  return launch_all<kVec, false>(p, shapes, aligned ? p.rows * p.channels : 0);
}

template <typename T, typename Acc = Accumulate<T>>
cudaError_t columns(
    const void* a, const void* b, const void* bias, const void* shift, const void* scale,
    const void* offset, void* y, void* mean, void* inverse, void* square, void* sum,
    void* magnitude, void* y_sum, void* total, void* weighted, void* count, void* partials,
    int64_t rows, int64_t channels, int64_t groups, int64_t blocks) {
  Columns<T> p{};
  static_cast<Sizes&>(p) = {rows, channels, groups, channels / groups};
  p.reads = {static_cast<const T*>(a), static_cast<const T*>(b)};
  p.writes = {static_cast<T*>(y)};
  p.bias_ptr = static_cast<const T*>(bias);
  p.shift_ptr = static_cast<const T*>(shift);
  p.scale_ptr = static_cast<const T*>(scale);
  p.offset_ptr = static_cast<const Acc*>(offset);
  p.mean_ptr = static_cast<Acc*>(mean);
  p.inverse_ptr = static_cast<Acc*>(inverse);
  p.square_ptr = static_cast<Acc*>(square);
  p.sum_ptr = static_cast<T*>(sum);
  p.magnitude_ptr = static_cast<Acc*>(magnitude);
  p.y_sum_ptr = static_cast<Acc*>(y_sum);
  p.total_ptr = static_cast<Acc*>(total);
  p.weighted_ptr = static_cast<Acc*>(weighted);
  p.count_ptr = static_cast<int64_t*>(count);
  p.partials = static_cast<Acc*>(partials);
  Shapes shapes;
  shapes.pointwise_blocks = blocks;
  return launch_all(p, shapes, aligned_to_16(a, b, y, bias, shift));
}

template <typename T, Unit kSegment, typename Acc = Accumulate<T>>
cudaError_t rows_(
    const void* a, const void* weight, const void* bias, const void* scale, const void* offset,
    void* y, void* mean, void* m2, void* square, void* sum, void* magnitude, int64_t rows,
    int64_t channels, int64_t groups, int64_t blocks) {
  Rows<T, kSegment> p{};
  static_cast<Sizes&>(p) = {rows, channels, groups, channels / groups};
  p.reads = {static_cast<const T*>(a)};
  p.writes = {static_cast<T*>(y)};
  p.weight_ptr = static_cast<const T*>(weight);
  p.bias_ptr = static_cast<const Acc*>(bias);
  p.scale_ptr = static_cast<const T*>(scale);
  p.offset_ptr = static_cast<const Acc*>(offset);
  p.mean_ptr = static_cast<Acc*>(mean);
  p.m2_ptr = static_cast<Acc*>(m2);
  p.square_ptr = static_cast<Acc*>(square);
  p.sum_ptr = static_cast<T*>(sum);
  p.magnitude_ptr = static_cast<Acc*>(magnitude);
  Shapes shapes;
  shapes.row_reduction_blocks = blocks;
  return launch_all(p, shapes, aligned_to_16(a, y, weight, bias));
}

}  // namespace toy

extern "C" int columns(
    int dtype, const void* a, const void* b, const void* bias, const void* shift, const void* scale,
    const void* offset, void* y, void* mean, void* inverse, void* square, void* sum,
    void* magnitude, void* y_sum, void* total, void* weighted, void* count, void* partials,
    int64_t rows, int64_t channels, int64_t groups, int64_t blocks) {
  const auto of = dtype == 0 ? toy::columns<float> : toy::columns<__nv_bfloat16>;
  return of(a, b, bias, shift, scale, offset, y, mean, inverse, square, sum, magnitude, y_sum,
            total, weighted, count, partials, rows, channels, groups, blocks);
}

extern "C" int rows(
    int dtype, const void* a, const void* weight, const void* bias, const void* scale,
    const void* offset, void* y, void* mean, void* m2, void* square, void* sum, void* magnitude,
    int64_t rows, int64_t channels, int64_t groups, int64_t by_group, int64_t blocks) {
  using fusegen::Unit;
  using BF16 = __nv_bfloat16;
  const auto by_groups =
      dtype == 0 ? toy::rows_<float, Unit::kGroup> : toy::rows_<BF16, Unit::kGroup>;
  const auto by_rows = dtype == 0 ? toy::rows_<float, Unit::kRow> : toy::rows_<BF16, Unit::kRow>;
  const auto of = by_group ? by_groups : by_rows;
  return of(a, weight, bias, scale, offset, y, mean, m2, square, sum, magnitude, rows, channels,
            groups, blocks);
}
