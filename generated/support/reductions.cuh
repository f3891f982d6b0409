// What a pass may reduce elements to: of each reduction its types and how values are added.
//
// A record of sums has one of these types for each of its fields.
#pragma once

#include <cmath>

#include "math.cuh"
#include "reduce.cuh"

namespace fusegen {

// Of all elements of a unit: their sum; their mean and the squares of the distances to it; the
// largest, which is NaN if one of them is.
struct Sum {};
struct MeanAndSquares {};
struct Largest {};

template <typename Acc>
struct Extreme {
  Acc value = Acc(-INFINITY);
};

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
template <typename Acc, typename Reduction>
struct RunningOf {
  using type = typename TotalOf<Acc, Reduction>::type;
};
template <typename Acc>
struct RunningOf<Acc, MeanAndSquares> {
  using type = PilotSums<Acc>;
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
__device__ __forceinline__ void add_term(PilotSums<Acc>& sum, Acc term, bool first) {
  if (first) sum.pilot = term;
  add_value(sum, term);
}
template <typename Acc>
__device__ __forceinline__ void add_term(Extreme<Acc>& largest, Acc term, bool) {
  largest.value = maximum(largest.value, term);
}

// How the values of several threads become one.
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
