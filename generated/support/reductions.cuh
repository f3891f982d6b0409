// The reductions of a pass: the types of each, and how values are added.
//
// A record of sums has one of the reductions as the type of each of its fields.
#pragma once

#include <cmath>

#include "math.cuh"
#include "moments.cuh"

namespace fusegen {

// Of all elements of a unit: their sum; their mean and the squared distances to it; the largest,
// which is NaN if one of them is.
struct Sum {};
struct MeanAndSquares {};
struct Largest {};

template <typename Acc>
struct Extreme {
  Acc value = Acc(-INFINITY);
};

// The result of a reduction, and its state in a thread while it adds elements.
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
template <typename Acc, typename Reduction>
struct RunningOf {
  using type = typename TotalOf<Acc, Reduction>::type;
};
template <typename Acc>
struct RunningOf<Acc, MeanAndSquares> {
  using type = ShiftedSums<Acc>;
};

// Records of sums with other types of fields: what an element adds, the results, the state in a
// thread, and the reductions themselves.
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

// Adds a term; the first term is the shift of moments.
template <typename Acc>
__device__ __forceinline__ void add_term(Acc& sum, Acc term, bool) {
  sum += term;
}
template <typename Acc>
__device__ __forceinline__ void add_term(ShiftedSums<Acc>& sum, Acc term, bool first) {
  if (first) sum.shift = term;
  add_value(sum, term);
}
template <typename Acc>
__device__ __forceinline__ void add_term(Extreme<Acc>& largest, Acc term, bool) {
  largest.value = maximum(largest.value, term);
}

// An operation that reduces values of several threads to one.
struct Larger {
  template <typename Acc>
  static __device__ __forceinline__ Acc identity() {
    return Acc(-INFINITY);
  }
  template <typename Acc>
  static __device__ __forceinline__ Acc combine(Acc x, Acc y) {
    return maximum(x, y);
  }
};

}  // namespace fusegen
