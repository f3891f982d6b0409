// Mean and variance from parts, without cancellation.
//
// The methods are those of Chan, Golub and LeVeque (1983), section 3: shifted sums while values are
// read, merging by distances to the common mean, and the corrected two-pass algorithm.
#pragma once

#include <cmath>

namespace fusegen {

// Mean and sum of squared distances to it, of a number of values that the caller knows.
template <typename Acc>
struct Moments {
  Acc mean;
  Acc m2;
};

// Sums of values less a shift. The shift must be one of the values: then the sum of squares is at
// most n times too large for n values, and subtracting the shift again does not cancel.
template <typename Acc>
struct ShiftedSums {
  Acc shift;
  Acc sum;
  Acc squares;
};

template <typename Acc>
__device__ __forceinline__ void add_value(ShiftedSums<Acc>& sums, Acc value) {
  const Acc distance = value - sums.shift;
  sums.sum += distance;
  sums.squares += distance * distance;
}

// Adds `count` values that have these moments; the shift may be the mean of some of them.
template <typename Acc>
__device__ __forceinline__ void add_values(ShiftedSums<Acc>& sums, Moments<Acc> part, Acc count) {
  const Acc distance = part.mean - sums.shift;
  sums.sum += count * distance;
  sums.squares += part.m2 + count * distance * distance;
}

// Squares less a part of them. Squares that have overflowed stay infinite, as in PyTorch's kernels,
// which gives a reciprocal deviation of zero: infinity minus infinity would be NaN.
template <typename Acc>
__device__ __forceinline__ Acc without(Acc squares, Acc part) {
  return squares < Acc(INFINITY) ? squares - part : squares;
}

template <typename Acc>
__device__ __forceinline__ Moments<Acc> moments_of(const ShiftedSums<Acc>& sums, Acc count) {
  if (count == Acc(0)) return {Acc(0), Acc(0)};
  const Acc distance = sums.sum / count;
  const Acc m2 = without(sums.squares, sums.sum * distance);
  return {sums.shift + distance, m2};
}

// Corrects mean and squares by the sum of the distances to a rounded mean, which would be zero for
// the exact mean (corrected two-pass algorithm). Equal values then have no variance.
template <typename Acc>
__device__ __forceinline__ void correct(Moments<Acc>& moments, Acc distances, Acc inverse_count) {
  const Acc rest = distances * inverse_count;
  const Acc m2 = without(moments.m2, distances * rest);
  moments = {moments.mean + rest, m2 < Acc(0) ? Acc(0) : m2};
}

// Merges the moments of parts by their distances to the common mean. In column v this thread's part
// has count(v) values; inverse(v) is one over the number of values of all parts. sum(x, ...) sums
// each array over the parts.
template <int N, typename Acc, typename Count, typename Inverse, typename Sum>
__device__ __forceinline__ void moments_of_parts(
    Moments<Acc> (&moments)[N], const Count& count, const Inverse& inverse, const Sum& sum) {
  Acc mean[N];
  Acc m2[N];
  Acc distances[N];
#pragma unroll
  for (int v = 0; v < N; ++v) mean[v] = count(v) * moments[v].mean;
  sum(mean);
#pragma unroll
  for (int v = 0; v < N; ++v) {
    mean[v] *= inverse(v);
    const Acc distance = moments[v].mean - mean[v];
    distances[v] = count(v) * distance;
    m2[v] = moments[v].m2 + distances[v] * distance;
  }
  sum(m2, distances);
#pragma unroll
  for (int v = 0; v < N; ++v) {
    moments[v] = {mean[v], m2[v]};
    correct(moments[v], distances[v], inverse(v));
  }
}

}  // namespace fusegen
