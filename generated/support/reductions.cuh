// What a pass may reduce elements to: of each reduction its types and how values are added.
//
// A record of sums has one of these types for each of its fields.
#pragma once

#include <cmath>
#include <cstdint>

#include "math.cuh"
#include "moments.cuh"

namespace fusegen {

// Of all elements of a unit: their sum; the sum over the rows of each sample, which one row of a
// tensor with fewer rows stands for; their mean and the squares of the distances to it; the
// largest, which is NaN if one of them is; the channel of the first one that is the largest; how
// many there are of the largest, none where it is NaN.
struct Sum {};
struct MeanAndSquares {};
struct Largest {};
struct FirstLargest {};
struct LargestTies {};

// How many values all elements add up to.
template <typename Reduction>
constexpr int kComponentsOf = 1;
template <>
inline constexpr int kComponentsOf<MeanAndSquares> = 2;
template <>
inline constexpr int kComponentsOf<FirstLargest> = 2;
template <>
inline constexpr int kComponentsOf<LargestTies> = 2;

// Combined records: what an element makes one of, how two become one, and the same function of each
// value. Without an element there is what changes no other record. To combine them is exact: no
// order of them gives another result.
template <typename Acc>
struct Extreme {
  Acc value = Acc(-INFINITY);

  static __device__ __forceinline__ Extreme of(Acc value, int64_t) { return {value}; }
  static __device__ __forceinline__ Extreme combine(const Extreme& x, const Extreme& y) {
    return {maximum(x.value, y.value)};
  }
  template <typename F>
  __device__ __forceinline__ Extreme map(const F& f) const {
    return {f(value)};
  }
};

// NaN is larger than any number, and equal to NaN.
template <typename Acc>
struct FirstExtreme {
  Acc value = Acc(-INFINITY);
  Acc channel = Acc(INFINITY);

  static __device__ __forceinline__ FirstExtreme of(Acc value, int64_t channel) {
    return {value, Acc(int(channel))};
  }
  static __device__ __forceinline__ FirstExtreme combine(
      const FirstExtreme& x, const FirstExtreme& y) {
    const bool x_is_nan = x.value != x.value, y_is_nan = y.value != y.value;
    const bool equal = x.value == y.value || (x_is_nan && y_is_nan);
    const bool first = equal ? x.channel < y.channel : x.value > y.value || x_is_nan;
    return first ? x : y;
  }
  template <typename F>
  __device__ __forceinline__ FirstExtreme map(const F& f) const {
    return {f(value), f(channel)};
  }
};

template <typename Acc>
struct TiedExtreme {
  Acc value = Acc(-INFINITY);
  Acc count = Acc(0);

  static __device__ __forceinline__ TiedExtreme of(Acc value, int64_t) {
    return {value, value == value ? Acc(1) : Acc(0)};
  }
  static __device__ __forceinline__ TiedExtreme combine(
      const TiedExtreme& x, const TiedExtreme& y) {
    if (x.value == y.value) return {x.value, x.count + y.count};
    return x.value > y.value || x.value != x.value ? x : y;
  }
  template <typename F>
  __device__ __forceinline__ TiedExtreme map(const F& f) const {
    return {f(value), f(count)};
  }
};

// How many values such a record has; 0 for what is none.
template <typename T>
constexpr int kCombinedValues = 0;
template <typename Acc>
constexpr int kCombinedValues<Extreme<Acc>> = 1;
template <typename Acc>
constexpr int kCombinedValues<FirstExtreme<Acc>> = 2;
template <typename Acc>
constexpr int kCombinedValues<TiedExtreme<Acc>> = 2;

// What all elements add up to, and what a thread keeps while it adds.
template <typename Acc, typename Reduction>
struct TotalOf {
  using type = Acc;
};
template <typename Acc>
struct TotalOf<Acc, MeanAndSquares> {
  using type = Moments<Acc>;
};
template <typename Acc>
struct TotalOf<Acc, Largest> {
  using type = Extreme<Acc>;
};
template <typename Acc>
struct TotalOf<Acc, FirstLargest> {
  using type = FirstExtreme<Acc>;
};
template <typename Acc>
struct TotalOf<Acc, LargestTies> {
  using type = TiedExtreme<Acc>;
};
template <typename Acc, typename Reduction>
struct RunningOf {
  using type = typename TotalOf<Acc, Reduction>::type;
};
template <typename Acc>
struct RunningOf<Acc, MeanAndSquares> {
  using type = ShiftedSums<Acc>;
};

// Of a record of sums: what an element adds, what all add up to, what a thread keeps, and the
// reductions themselves.
template <typename Acc>
struct TermsIn {
  template <typename Reduction>
  using Of = Acc;
};
template <typename Acc>
struct TotalsIn {
  template <typename Reduction>
  using Of = typename TotalOf<Acc, Reduction>::type;
};
template <typename Acc>
struct RunningIn {
  template <typename Reduction>
  using Of = typename RunningOf<Acc, Reduction>::type;
};
template <typename Reduction>
using AsIs = Reduction;

// Adds a term; the first one is what moments are measured from.
template <typename Acc>
__device__ __forceinline__ void add_term(Acc& sum, Acc term, bool) {
  sum += term;
}
template <typename Acc>
__device__ __forceinline__ void add_term(ShiftedSums<Acc>& sum, Acc term, bool first) {
  if (first) sum.shift = term;
  add_value(sum, term);
}

// Adds the term of an element of a row.
template <typename Acc>
__device__ __forceinline__ void add_element(Acc& sum, Acc term, int64_t) {
  sum += term;
}
template <template <typename> typename Record, typename Acc>
__device__ __forceinline__ void add_element(Record<Acc>& record, Acc term, int64_t channel) {
  record = Record<Acc>::combine(record, Record<Acc>::of(term, channel));
}

// How the records of several threads become one; `Add` does that with sums.
struct Combine {
  template <typename Record>
  static __device__ __forceinline__ Record identity() {
    return {};
  }
  template <typename Record>
  static __device__ __forceinline__ Record combine(const Record& x, const Record& y) {
    return Record::combine(x, y);
  }
};

}  // namespace fusegen
