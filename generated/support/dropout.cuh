// Dropout: factors that are 0 or 1 / (1 - p), drawn for each element or each sample.
//
// A factor follows from the seed, the number of its dropout in the chain and the number of its
// element, and from nothing else: not from a schedule, a vector or a launch shape. So the backward
// pass draws the same factors again, and no mask is stored. templates/support/dropout.py makes the
// same numbers in PyTorch.
//
// Number n of a dropout is word n % 4 of philox({n / 4, stream, 0}, seed), n / 4 as two words.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_runtime.h>

#include "columns.cuh"
#include "packs.cuh"
#include "parts.cuh"
#include "philox.cuh"
#include "unaligned.cuh"

namespace fusegen {

// One dropout of a program. An element is kept if its word is not below `least`; scale: the factor
// of what is kept.
template <typename Acc>
struct Dropout {
  const int64_t* seed;  // on the device, drawn by the module
  int64_t sample;       // rows of a sample, where one factor is drawn for each
  unsigned stream;      // which dropout of the chain it is
  unsigned least;
  Acc scale;
};

// p: the share that is dropped, from 0 to 1, to 2^-32. All is dropped where it is 1: x * 0 then.
template <typename Acc>
Dropout<Acc> dropout_of(const void* seed, unsigned stream, double p, int64_t sample = 1) {
  const double least = std::nearbyint(p * 4294967296.0);
  return {static_cast<const int64_t*>(seed), sample, stream,
      least < 4294967295.0 ? unsigned(least) : 4294967295u, p < 1 ? Acc(1 / (1 - p)) : Acc(0)};
}

// The words of numbers 4 block to 4 block + 3.
template <typename Acc>
__device__ __forceinline__ Words draw_block(const Dropout<Acc>& dropout, int64_t block) {
  const Words counter{
      {unsigned(block), unsigned(uint64_t(block) >> 32), dropout.stream, 0u}};
  return philox(counter, uint64_t(read(dropout.seed)));
}

template <typename Acc>
__device__ __forceinline__ Acc factor_of(const Dropout<Acc>& dropout, unsigned word) {
  return word >= dropout.least ? dropout.scale : Acc(0);
}

// Word i of four and more, without an array in memory.
template <int kWords>
__device__ __forceinline__ unsigned word_at(const unsigned (&word)[kWords], int first, int i) {
  static_assert(kWords >= 4);
  unsigned found = word[i];
#pragma unroll
  for (int k = 1; k < 4; ++k) {
    if (first == k && i + k < kWords) found = word[i + k];
  }
  return found;
}

template <typename Acc>
__device__ __forceinline__ Acc draw_one(const Dropout<Acc>& dropout, int64_t number) {
  const Words words = draw_block(dropout, number >> 2);
  return factor_of(dropout, word_at(words.word, int(number & 3), 0));
}

// Factors of N neighbours from number `first` on. kAligned: that is a multiple of N.
template <bool kAligned, int N, typename Acc>
__device__ __forceinline__ void draw_neighbours(
    const Dropout<Acc>& dropout, int64_t first, Acc (&factor)[N]) {
  constexpr int kBlocks = kAligned ? (N + 3) / 4 : (N + 6) / 4;
  unsigned word[4 * kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const Words words = draw_block(dropout, (first >> 2) + b);
#pragma unroll
    for (int w = 0; w < 4; ++w) word[4 * b + w] = words.word[w];
  }
  const int skipped = kAligned && N % 4 == 0 ? 0 : int(first & 3);
#pragma unroll
  for (int v = 0; v < N; ++v) factor[v] = factor_of(dropout, word_at(word, skipped, v));
}

// Factors of a thread's columns of the row that begins at element `row`; columns that do not exist
// get any.
template <int N, typename Acc>
__device__ __forceinline__ void draw_columns(
    const Dropout<Acc>& dropout, const Columns<N, true>& columns, int64_t row, Acc (&factor)[N]) {
  draw_neighbours<true>(dropout, row + columns.first, factor);
}
template <int N, typename Acc>
__device__ __forceinline__ void draw_columns(
    const Dropout<Acc>& dropout, const MaskedVector<N>& columns, int64_t row, Acc (&factor)[N]) {
  draw_neighbours<true>(dropout, row + columns.first, factor);
}
template <int N, typename Acc>
__device__ __forceinline__ void draw_columns(
    const Dropout<Acc>& dropout, const UnalignedVector<N>& columns, int64_t row,
    Acc (&factor)[N]) {
  draw_neighbours<false>(dropout, row + columns.first, factor);
}
template <int N, typename Acc>
__device__ __forceinline__ void draw_columns(
    const Dropout<Acc>& dropout, const Columns<N, false>& columns, int64_t row,
    Acc (&factor)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) factor[v] = draw_one(dropout, row + columns.at(v));
}
template <int N, class Here, typename Acc>
__device__ __forceinline__ void draw_columns(
    const Dropout<Acc>& dropout, const VectorOverRows<N, Here>& columns, int64_t row,
    Acc (&factor)[N]) {
  draw_columns(dropout, columns.here, row, factor);
}

// The same where the row may begin anywhere in a vector, not only at a multiple of it.
template <typename ColumnsOf, int N, typename Acc>
__device__ __forceinline__ void draw_columns_anywhere(
    const Dropout<Acc>& dropout, const ColumnsOf& columns, int64_t row, Acc (&factor)[N]) {
  draw_columns(dropout, columns, row, factor);
}
template <int N, typename Acc>
__device__ __forceinline__ void draw_columns_anywhere(
    const Dropout<Acc>& dropout, const MaskedVector<N>& columns, int64_t row, Acc (&factor)[N]) {
  draw_neighbours<false>(dropout, row + columns.first, factor);
}
template <int N, class Here, typename Acc>
__device__ __forceinline__ void draw_columns_anywhere(
    const Dropout<Acc>& dropout, const VectorOverRows<N, Here>& columns, int64_t row,
    Acc (&factor)[N]) {
  draw_columns_anywhere(dropout, columns.here, row, factor);
}

// The factors of samples as a tensor of one value per row that is not in memory: kernels read them
// as they read such a tensor.
template <typename Acc>
struct SampleFactor {
  Acc value;
};
template <typename Acc>
struct SampleFactors {
  const Dropout<Acc>& dropout;
  int64_t row = 0;

  __device__ __forceinline__ SampleFactors operator+(int64_t rows) const {
    return {dropout, row + rows};
  }
};
template <typename Acc>
__device__ __forceinline__ SampleFactor<Acc> read(const SampleFactors<Acc>& at) {
  const int64_t row = at.row, rows = at.dropout.sample;
  int64_t sample = row;
  if (rows != 1) {
    // A division of 64 bits takes several times as long.
    const bool is_short = ((row | rows) >> 32) == 0;
    sample = is_short ? int64_t(unsigned(row) / unsigned(rows)) : row / rows;
  }
  return {draw_one(at.dropout, sample)};
}
template <typename Acc>
__device__ __forceinline__ Acc widen(const SampleFactor<Acc>& factor) {
  return factor.value;
}

}  // namespace fusegen
