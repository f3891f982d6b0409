// Small programs for the row kernel, in the form that the generator gives them. Of each there is
// one of rows and one of groups of channels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../support/kernels/program.cuh"
#include "../support/math.cuh"
#include "../support/shapes.cuh"
#include "records.cuh"

using namespace fusegen;

// One multiprocessor, so that few rows are many iterations.
constexpr Target kSmall{90, 1, 232448, 1 << 20, 8};

struct NothingOfRows {};
struct NothingOfGroups {};

// Two moments and a plain sum in one pass; a value that is cached; values of channels, rows and
// groups that follow from tensors alone.
template <typename T_, bool kOfRows>
struct Normalised : Program {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr int kPasses = 2;
  static constexpr Unit kUnit[] = {kOfRows ? Unit::kRow : Unit::kGroup, Unit::kNone};
  static constexpr unsigned kReadBy[] = {0b11, 0b11};
  static constexpr int kRowTensorsBy[] = {1, kOfRows ? 4 : 1};
  static constexpr int kGroupTensorsBy[] = {0, kOfRows ? 1 : 4};
  static constexpr int kRowConstants = 2, kRowValues = 5;

  FUSEGEN_RECORD(Reads, Read, (x_v, T) (z_v, T))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, T) (w_v, T))
  Writes<WritePointer> writes;
  static constexpr unsigned kOptionalWrites = ~0u;
  const T* bias_ptr;        // [channels], may be null
  const T* weight_ptr;      // [channels]
  const Acc* scale_ptr;     // [rows]
  const Acc* offset_ptr;    // [rows, groups]
  Acc *mean_ptr, *rstd_ptr, *squares_ptr;  // one a segment, may be null
  Acc* partials;

  struct Scalars {
    Acc inverse_length;
  };
  FUSEGEN_DEVICE Scalars scalars() const {
    return {Acc(1) / Acc(kOfRows ? channels : group_length)};
  }
  struct Channel {
    Acc bias_v, weight_v, twice_weight_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F& f) const {
    f(Uses<0b11>(), bias_ptr, bias_ptr != nullptr, &Channel::bias_v);
    f(Uses<0b10>(), weight_ptr, true, &Channel::weight_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_channel(K& k) const {
    k.twice_weight_v = k.weight_v + k.weight_v;
  }
  struct Statistics {
    Acc mean_v, rstd_v, z_mean_v, dot_v, squares_v;
  };
  struct Row : std::conditional_t<kOfRows, Statistics, NothingOfRows> {
    Acc scale_v, more_scale_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F& f) const {
    f(Uses<0b10>(), scale_ptr, true, &Row::scale_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_row(K& k) const {
    k.more_scale_v = k.scale_v + Acc(1);
  }
  struct Group : std::conditional_t<kOfRows, NothingOfGroups, Statistics> {
    Acc offset_v, twice_offset_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void group_tensors(const F& f) const {
    f(Uses<0b10>(), offset_ptr, true, &Group::offset_v);
  }
  template <typename K>
  FUSEGEN_DEVICE void derive_group(K& k) const {
    k.twice_offset_v = k.offset_v + k.offset_v;
  }
  struct Cached {
    Acc u_v;
  };
  static constexpr unsigned kCachedInRegisters[] = {0b0, 0b1};

  FUSEGEN_SUMS(Sums0, (u_moments_v, MeanAndSquares) (dot_sum_v, Sum) (z_moments_v, MeanAndSquares))
  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<kPass == 0, Sums0<Of>, Nothing>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  FUSEGEN_DEVICE void element(const X& x, const K& k, Cached& cached, S& term, Y& y) const {
    const Acc u_v = kCached & 1 ? cached.u_v : x.x_v + k.bias_v;
    cached.u_v = u_v;
    if constexpr (kPass == 0) {
      term.u_moments_v = u_v;
      term.dot_sum_v = u_v * x.z_v;
      term.z_moments_v = x.z_v;
    } else {
      const Acc hat_v = (u_v - k.mean_v) * k.rstd_v;
      y.y_v = (hat_v * k.twice_weight_v + k.twice_offset_v) * k.more_scale_v + k.dot_v;
      y.w_v = x.z_v - k.z_mean_v;
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void follow(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.mean_v = total.u_moments_v.mean;
      k.rstd_v = rsqrt(total.u_moments_v.m2 * k.inverse_length + Acc(0.1));
      k.z_mean_v = total.z_moments_v.mean;
      k.dot_v = total.dot_sum_v * k.inverse_length;
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void finish(K& k, const S& total) const {
    if constexpr (kPass == 0) k.squares_v = total.z_moments_v.m2;
  }
  template <int kPass, bool kResident, typename F>
  FUSEGEN_BOTH void results(const F& f) const {
    if constexpr (kPass == 0) {
      f(mean_ptr, &Statistics::mean_v);
      f(rstd_ptr, &Statistics::rstd_v);
      f(squares_ptr, &Statistics::squares_v);
    }
  }
};

// Plain sums, then column sums. The row kernel begins with pass 1, after a kernel of columns.
template <typename T_, bool kOfRows>
struct Gradient : Program {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr int kPasses = 3;
  static constexpr Unit kUnit[] = {
      Unit::kChannel, kOfRows ? Unit::kRow : Unit::kGroup, Unit::kChannel};
  static constexpr unsigned kReadBy[] = {0b100, 0b011, 0b011};
  static constexpr int kRowTensorsBy[] = {0, 1, 1}, kGroupTensorsBy[] = {0, 1, 1};
  // Of rows in float32 so many that shared memory has them.
  static constexpr int kRowConstants = kOfRows && sizeof(T) == 4 ? 4 : 2, kRowValues = 4;

  FUSEGEN_RECORD(Reads, Read, (x_v, T) (grad_v, T) (other_v, T))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, T))
  Writes<WritePointer> writes;  // may be null
  static constexpr unsigned kOptionalWrites = ~0u;
  const T* weight_ptr;          // [channels]
  const Acc* center_ptr;        // [channels], of pass 0
  const Acc* factor_ptr;        // [rows]
  const Acc* rstd_ptr;          // [rows, groups]
  Acc* shift_ptr;               // one a segment, may be null
  Acc* partials;

  struct Scalars {
    Acc inverse_length;
  };
  FUSEGEN_DEVICE Scalars scalars() const {
    return {Acc(1) / Acc(kOfRows ? channels : group_length)};
  }
  struct Channel {
    Acc weight_v, center_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F& f) const {
    f(Uses<0b110>(), weight_ptr, true, &Channel::weight_v);
    if constexpr (kFrom > 0) f(Uses<0b010>(), center_ptr, true, &Channel::center_v);
  }
  struct Own {
    Acc slope_v, shift_v;
  };
  struct Row : std::conditional_t<kOfRows, Own, NothingOfRows> {
    Acc factor_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F& f) const {
    f(Uses<0b110>(), factor_ptr, true, &Row::factor_v);
  }
  struct Group : std::conditional_t<kOfRows, NothingOfGroups, Own> {
    Acc rstd_v;
  };
  template <int kFrom, typename F>
  FUSEGEN_BOTH void group_tensors(const F& f) const {
    f(Uses<0b110>(), rstd_ptr, true, &Group::rstd_v);
  }
  struct Cached {
    Acc hat_v;
  };
  static constexpr unsigned kCachedInRegisters[] = {0b0, 0b0, 0b1};

  FUSEGEN_SUMS(Sums1, (d_sum_v, Sum) (hat_d_sum_v, Sum))
  FUSEGEN_SUMS(Sums2, (grad_sum_v, Sum) (hat_grad_sum_v, Sum) (dx_sum_v, Sum))
  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<
      kPass == 0, OneSum<Of>, std::conditional_t<kPass == 1, Sums1<Of>, Sums2<Of>>>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  FUSEGEN_DEVICE void element(const X& x, const K& k, Cached& cached, S& term, Y& y) const {
    if constexpr (kPass == 0) {
      term.sum_v = x.other_v;
    } else {
      const Acc hat_v = kCached & 1 ? cached.hat_v : (x.x_v - k.center_v) * k.rstd_v;
      cached.hat_v = hat_v;
      const Acc d_v = x.grad_v * k.weight_v;
      if constexpr (kPass == 1) {
        term.d_sum_v = d_v * k.factor_v;
        term.hat_d_sum_v = hat_v * d_v;
      } else {
        const Acc dx_v = (d_v - hat_v * k.slope_v - k.shift_v) * k.factor_v * k.rstd_v;
        term.grad_sum_v = x.grad_v;
        term.hat_grad_sum_v = hat_v * x.grad_v;
        term.dx_sum_v = dx_v;
        y.y_v = dx_v;
      }
    }
  }
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void follow(K& k, const S& total) const {
    if constexpr (kPass == 1) {
      k.slope_v = total.hat_d_sum_v * k.inverse_length;
      k.shift_v = total.d_sum_v * k.inverse_length;
    }
  }
  template <int kPass, bool kResident, typename F>
  FUSEGEN_BOTH void results(const F& f) const {
    if constexpr (kPass == 1) f(shift_ptr, &Own::shift_v);
  }
};
