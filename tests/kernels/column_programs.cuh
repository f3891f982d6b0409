// Programs for the tests of the kernels that take sums of columns, as kernels.cu would have them.
#include <cstdint>

#include "../support/kernels/program.cuh"
#include "../support/math.cuh"
#include "../support/shapes.cuh"
#include "records.cuh"

namespace {
using namespace fusegen;

constexpr Target kH100{90, 132, 227 * 1024, 50 << 20, 8};

// Batch norm of x + bias with running statistics: moments, and one tensor that is read again.
template <typename T_, typename Out, typename Param>
struct Normalise : Program {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr int kPasses = 2;
  static constexpr Unit kUnit[] = {Unit::kChannel, Unit::kNone};
  static constexpr unsigned kReadBy[] = {0b1, 0b1};
  static constexpr unsigned kTileReads = 0b1;
  static constexpr int kColumnValues = 9;
  static constexpr int kChannelValuesBy[] = {0, 3};

  FUSEGEN_RECORD(Reads, Read, (x_v, T))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, Out))
  Writes<WritePointer> writes;
  const Param* weight_ptr;
  const Param* bias_ptr;
  Acc* mean_ptr;
  Acc* rstd_ptr;
  Param* running_mean_ptr;  // may be null
  int64_t* batches_ptr;     // may be null
  Acc eps_v, momentum_v;
  Acc* partials;
  Acc* scale_ptr;  // [channels], in the workspace

  struct Scalars {
    Acc kept_v;
  };
  __device__ Scalars scalars() const { return {Acc(1) - momentum_v}; }
  struct Channel {
    Acc weight_v, bias_v, running_mean_v, shift_v, mean_v, rstd_v, scale_v, new_running_mean_v;
  };
  template <int kFrom, typename F>
  __host__ __device__ void channel_tensors(const F& f) const {
    f(Uses<0b00>(), running_mean_ptr, running_mean_ptr != nullptr, &Channel::running_mean_v);
    if constexpr (kFrom <= 0) f(Uses<0b01>(), weight_ptr, true, &Channel::weight_v);
    f(Uses<0b10>(), bias_ptr, true, &Channel::bias_v);
    if constexpr (kFrom > 0) {
      f(Uses<0b10>(), mean_ptr, true, &Channel::mean_v);
      f(Uses<0b10>(), scale_ptr, true, &Channel::scale_v);
    }
  }
  template <typename K>
  __device__ void derive_channel(K& k) const {
    k.shift_v = k.bias_v * Acc(2);
  }

  FUSEGEN_SUMS(Sums0, (moments_v, MeanAndSquares))
  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<kPass == 0, Sums0<Of>, Nothing>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  __device__ __forceinline__ void element(const X& x, const K& k, Cached&, S& term, Y& y) const {
    if constexpr (kPass == 0) {
      term.moments_v = x.x_v;
    } else {
      y.y_v = (x.x_v - k.mean_v) * k.scale_v + k.shift_v;
    }
  }
  template <int kPass, typename K, typename S>
  __device__ __forceinline__ void follow(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.mean_v = total.moments_v.mean;
      k.rstd_v = rsqrt(total.moments_v.m2 / Acc(rows) + eps_v);
      k.scale_v = k.weight_v * k.rstd_v;
    }
  }
  template <int kPass, typename K, typename S>
  __device__ __forceinline__ void finish(K& k, const S&) const {
    if constexpr (kPass == 0) {
      k.new_running_mean_v = k.kept_v * k.running_mean_v + momentum_v * k.mean_v;
    }
  }
  template <int kPass, bool kResident, typename F>
  __host__ __device__ void results(const F& f) const {
    if constexpr (kPass == 0) {
      f(mean_ptr, &Channel::mean_v);
      f(rstd_ptr, &Channel::rstd_v);
      f(running_mean_ptr, &Channel::new_running_mean_v);
      if constexpr (!kResident) f(scale_ptr, &Channel::scale_v);
    }
  }
  template <int kPass>
  __device__ void count() const {
    if constexpr (kPass == 0) {
      if (batches_ptr != nullptr) ++*batches_ptr;
    }
  }
};

// A backward pass: sums of each kind in pass 0, a sum in the last one; a tensor that is read again,
// one that comes through the tile of a cached value, and one that does not.
template <typename T_, typename Out, typename Param>
struct Gradient : Program {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr int kPasses = 2;
  static constexpr Unit kUnit[] = {Unit::kChannel, Unit::kChannel};
  static constexpr unsigned kReadBy[] = {0b111, 0b111};
  static constexpr unsigned kTileReads = 0b001;
  static constexpr int kColumnValues = 9;
  static constexpr int kChannelValuesBy[] = {1, 3};

  FUSEGEN_RECORD(Reads, Read, (x_v, T) (grad_y_v, Out) (gate_v, Out))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (grad_x_v, T) (grad_gate_v, Out))
  Writes<WritePointer> writes;
  static constexpr unsigned kOptionalWrites = 0b10;
  const Param* weight_ptr;
  Acc* d_sum_ptr;
  Acc* x_m2_ptr;
  Param* xd_sum_ptr;  // may be null
  Acc* out_sum_ptr;
  Acc* partials;
  Acc* slope_ptr;  // [channels], in the workspace

  struct Scalars {
    Acc inverse_count_v;
  };
  __device__ Scalars scalars() const { return {Acc(1) / Acc(rows)}; }
  struct Channel {
    Acc weight_v, d_sum_v, x_m2_v, xd_sum_v, x_mean_v, slope_v, double_xd_sum_v, out_sum_v;
  };
  template <int kFrom, typename F>
  __host__ __device__ void channel_tensors(const F& f) const {
    f(Uses<0b11>(), weight_ptr, true, &Channel::weight_v);
    if constexpr (kFrom > 0) {
      f(Uses<0b10>(), d_sum_ptr, true, &Channel::d_sum_v);
      f(Uses<0b10>(), slope_ptr, true, &Channel::slope_v);
    }
  }

  FUSEGEN_CACHED((unused_v, Acc) (d_v, Acc))
  static constexpr unsigned kCachedInRegisters[] = {0, 0b1};
  static constexpr unsigned kCachedInShared[] = {0, 0b10};

  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<kPass == 0, SumsAndMoments<Of>, OneSum<Of>>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  FUSEGEN_DEVICE void element(const X& x, const K& k, Cached& cached, S& term, Y& y) const {
    const Acc d_v = kCached & 2 ? cached.d_v : x.grad_y_v * x.gate_v * k.weight_v;
    cached.d_v = d_v;
    if constexpr (kPass == 0) {
      term.first_sum_v = d_v;
      term.moments_v = x.x_v;
      term.second_sum_v = x.x_v * d_v;
      term.third_sum_v = x.x_v;
    } else {
      const Acc grad_v = d_v - (x.x_v * k.slope_v + k.d_sum_v * k.inverse_count_v);
      term.sum_v = grad_v;
      y.grad_x_v = grad_v;
      y.grad_gate_v = d_v;
    }
  }
  template <int kPass, typename K, typename S>
  __device__ __forceinline__ void follow(K& k, const S& total) const {
    if constexpr (kPass == 0) {
      k.d_sum_v = total.first_sum_v;
      k.x_m2_v = total.moments_v.m2;
      k.slope_v = (total.second_sum_v + total.third_sum_v) * k.inverse_count_v;
    }
  }
  template <int kPass, typename K, typename S>
  __device__ __forceinline__ void finish(K& k, const S& total) const {
    if constexpr (kPass == 0) k.double_xd_sum_v = Acc(2) * total.second_sum_v;
    if constexpr (kPass == 1) k.out_sum_v = total.sum_v;
  }
  template <int kPass, bool kResident, typename F>
  __host__ __device__ void results(const F& f) const {
    if constexpr (kPass == 0) {
      f(d_sum_ptr, &Channel::d_sum_v);
      f(x_m2_ptr, &Channel::x_m2_v);
      f(xd_sum_ptr, &Channel::double_xd_sum_v);
      if constexpr (!kResident) f(slope_ptr, &Channel::slope_v);
    } else {
      f(out_sum_ptr, &Channel::out_sum_v);
    }
  }
};

// Passes 1 and 2 of three, with values of rows and groups that an earlier kernel left; what pass 2
// alone reads comes in pass 1.
template <typename T_>
struct Grouped : Program {
  using T = T_;
  using Acc = Accumulate<T>;
  static constexpr int kPasses = 3;
  static constexpr Unit kUnit[] = {Unit::kRow, Unit::kChannel, Unit::kNone};
  static constexpr unsigned kReadBy[] = {0b01, 0b01, 0b11};
  static constexpr unsigned kTileReads = 0b11;
  static constexpr int kColumnValues = 4;
  static constexpr int kChannelValuesBy[] = {0, 1, 2};
  static constexpr int kRowTensorsBy[] = {0, 1, 0}, kGroupTensorsBy[] = {0, 1, 2};

  FUSEGEN_RECORD(Reads, Read, (x_v, T) (z_v, T))
  Reads<ReadPointer> reads;
  FUSEGEN_RECORD(Writes, Write, (y_v, T))
  Writes<WritePointer> writes;
  const T* bias_ptr;
  const Acc* row_ptr;     // [rows]
  const Acc* scale_ptr;   // [rows, groups]
  const Acc* offset_ptr;  // [rows, groups]

  struct Scalars {
    Acc two_v;
  };
  __device__ Scalars scalars() const { return {Acc(2)}; }
  struct Channel {
    Acc bias_v, sum_v;
  };
  template <int kFrom, typename F>
  __host__ __device__ void channel_tensors(const F& f) const {
    f(Uses<0b110>(), bias_ptr, true, &Channel::bias_v);
  }
  struct Row {
    Acc row_v, double_row_v;
  };
  struct Group {
    Acc scale_v, offset_v, shift_v;
  };
  template <int kFrom, typename F>
  __host__ __device__ void row_tensors(const F& f) const {
    f(Uses<0b010>(), row_ptr, true, &Row::row_v);
  }
  template <int kFrom, typename F>
  __host__ __device__ void group_tensors(const F& f) const {
    f(Uses<0b110>(), scale_ptr, true, &Group::scale_v);
    f(Uses<0b100>(), offset_ptr, true, &Group::offset_v);
  }
  template <typename K>
  __device__ void derive_row(K& k) const {
    k.double_row_v = k.two_v * k.row_v;
  }
  template <typename K>
  __device__ void derive_group(K& k) const {
    k.shift_v = k.offset_v + k.bias_v;
  }

  template <int kPass, template <typename> class Of>
  using Sums = std::conditional_t<kPass == 1, OneSum<Of>, Nothing>;

  template <int kPass, unsigned kCached, typename X, typename K, typename S, typename Y>
  __device__ __forceinline__ void element(const X& x, const K& k, Cached&, S& term, Y& y) const {
    if constexpr (kPass == 1) {
      term.sum_v = (x.x_v + k.double_row_v) * k.scale_v + k.bias_v;
    } else {
      y.y_v = x.x_v * k.sum_v + x.z_v * k.scale_v + k.shift_v;
    }
  }
  template <int kPass, typename K, typename S>
  __device__ __forceinline__ void follow(K& k, const S& total) const {
    if constexpr (kPass == 1) k.sum_v = total.sum_v;
  }
};

// What the tests give to a program.
struct Given {
  const void* read[8];
  void* written[8];
  int64_t rows, channels, groups;
  double eps, momentum;
};

template <typename E>
const E* given(const void* pointer) {
  return static_cast<const E*>(pointer);
}
template <typename E>
E* given(void* pointer) {
  return static_cast<E*>(pointer);
}

template <typename T, typename Out, typename Param>
Normalise<T, Out, Param> make_normalise(const Given& g) {
  using Acc = Accumulate<T>;
  Normalise<T, Out, Param> p{};
  static_cast<Sizes&>(p) = {g.rows, g.channels, 1, g.channels};
  p.reads.x_v = given<T>(g.read[0]);
  p.weight_ptr = given<Param>(g.read[1]);
  p.bias_ptr = given<Param>(g.read[2]);
  p.writes.y_v = given<Out>(g.written[0]);
  p.mean_ptr = given<Acc>(g.written[1]);
  p.rstd_ptr = given<Acc>(g.written[2]);
  p.running_mean_ptr = given<Param>(g.written[3]);
  p.batches_ptr = given<int64_t>(g.written[4]);
  p.partials = given<Acc>(g.written[5]);
  p.scale_ptr = given<Acc>(g.written[6]);
  p.eps_v = Acc(g.eps);
  p.momentum_v = Acc(g.momentum);
  return p;
}

template <typename T, typename Out, typename Param>
Gradient<T, Out, Param> make_gradient(const Given& g) {
  using Acc = Accumulate<T>;
  Gradient<T, Out, Param> p{};
  static_cast<Sizes&>(p) = {g.rows, g.channels, 1, g.channels};
  p.reads.x_v = given<T>(g.read[0]);
  p.reads.grad_y_v = given<Out>(g.read[1]);
  p.reads.gate_v = given<Out>(g.read[2]);
  p.weight_ptr = given<Param>(g.read[3]);
  p.writes.grad_x_v = given<T>(g.written[0]);
  p.writes.grad_gate_v = given<Out>(g.written[1]);
  p.d_sum_ptr = given<Acc>(g.written[2]);
  p.x_m2_ptr = given<Acc>(g.written[3]);
  p.xd_sum_ptr = given<Param>(g.written[4]);
  p.partials = given<Acc>(g.written[5]);
  p.slope_ptr = given<Acc>(g.written[6]);
  p.out_sum_ptr = given<Acc>(g.written[7]);
  return p;
}

template <typename T>
Grouped<T> make_grouped(const Given& g) {
  using Acc = Accumulate<T>;
  Grouped<T> p{};
  static_cast<Sizes&>(p) = {g.rows, g.channels, g.groups, g.channels / g.groups};
  p.reads.x_v = given<T>(g.read[0]);
  p.reads.z_v = given<T>(g.read[1]);
  p.bias_ptr = given<T>(g.read[2]);
  p.row_ptr = given<Acc>(g.read[3]);
  p.scale_ptr = given<Acc>(g.read[4]);
  p.offset_ptr = given<Acc>(g.read[5]);
  p.writes.y_v = given<T>(g.written[0]);
  return p;
}

}  // namespace
