// What a thread of the row kernel keeps of its columns, and how the values of a segment that lie in
// the registers of several threads come together.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../math.cuh"
#include "../packs.cuh"
#include "../reduce.cuh"
#include "../runs.cuh"
#include "program.cuh"
#include "row_passes.cuh"

namespace fusegen {

// The channel tensors that passes from kFirst on need. They are in registers, value[i] for the
// thread's item i; or, with kStaged, in shared memory, and value[0] is of the item that was taken
// last. Their places there are the thread's own, so nobody waits for them.
template <class P, int kFirst, int kVec, int kItems, bool kStaged>
struct RowChannels {
  typename P::Channel value[kStaged ? 1 : kItems][kVec];
  unsigned char* memory;

  // Calls f(uses, pointer, present, field, place) with the place of item i.
  template <typename F>
  __device__ __forceinline__ void each_place(const P& p, int i, const F& f) const {
    unsigned char* next = memory;
    p.template channel_tensors<kFirst>([&](auto uses, auto* from, bool present, auto field) {
      if constexpr ((decltype(uses)::passes & RowPasses<P, kFirst>::kMask) != 0) {
        using Vector = LoadedFrom<std::remove_pointer_t<decltype(from)>, kVec>;
        auto* const places = reinterpret_cast<Vector*>(next);
        next = behind<unsigned char>(places, kItems * blockDim.x);
        f(uses, from, present, field, places[i * blockDim.x + threadIdx.x]);
      }
    });
  }

  template <typename ColumnsOf>
  __device__ __forceinline__ void load(const P& p, const ColumnsOf (&columns)[kItems]) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if constexpr (kStaged) {
        each_place(p, i, [&](auto, auto* from, bool present, auto, auto& place) {
          if (present) place = load_constants(columns[i], from);
        });
      } else {
        load_channels<kFirst, RowPasses<P, kFirst>::kMask>(
            p, columns[i], columns[i].any(), value[i]);
      }
    }
  }

  // Makes value[kStaged ? 0 : i] what a pass needs of item i.
  template <int kPass>
  __device__ __forceinline__ void take(const P& p, int i) {
    if constexpr (kStaged) {
      each_place(p, i, [&](auto uses, auto*, bool present, auto field, const auto& place) {
        if constexpr (has_bit(decltype(uses)::passes, kPass)) {
          typename P::Acc widened[kVec];
          widen_values(place, present, widened);
#pragma unroll
          for (int v = 0; v < kVec; ++v) value[0][v].*field = widened[v];
        }
      });
    }
  }

  // Where the next array begins in shared memory.
  __device__ __forceinline__ unsigned char* end(const P& p) const {
    unsigned char* last = memory;
    each_place(p, 0, [&](auto, auto*, bool, auto, auto& place) {
      last = behind<unsigned char>(&place - threadIdx.x, kItems * blockDim.x);
    });
    return last;
  }
};

// Sums of the thread's columns over the rows of its block: in registers or, with kStaged, in shared
// memory, as RowChannels has its values.
template <typename Acc, int kSums, int kVec, int kItems, bool kStaged>
struct RowColumnSums {
  Acc value[kSums][kStaged ? 1 : kItems][kVec] = {};
  Loaded<Acc, kVec>* memory;

  __device__ __forceinline__ Loaded<Acc, kVec>& place(int sum, int i) const {
    return memory[(sum * kItems + i) * blockDim.x + threadIdx.x];
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; kStaged && i < kItems; ++i) put(i);
  }
  // Makes value[n][kStaged ? 0 : i] the sums of item i, and keeps what they have become.
  __device__ __forceinline__ void take(int i) {
#pragma unroll
    for (int n = 0; kStaged && n < kSums; ++n) widen_values(place(n, i), true, value[n][0]);
  }
  __device__ __forceinline__ void put(int i) const {
#pragma unroll
    for (int n = 0; kStaged && n < kSums; ++n) place(n, i) = loaded(value[n][0]);
  }

  // Adds item i up over the `height` rows of the block, in a fixed order, and stores the results as
  // partial results of `channels` each. The seat is that of the thread; `exchange` as
  // sum_over_rows() has it.
  template <typename ColumnsOf>
  __device__ __forceinline__ void store(
      int i, const ColumnsOf& columns, const Seat& seat, int lanes, int height, Acc* exchange,
      Acc* partials, int64_t channels) {
    const int own = kStaged ? 0 : i;
    take(i);
#pragma unroll
    for (int n = 0; n < kSums; n += 2) {
      if (height == 1) continue;
      if (n + 1 < kSums) {
        sum_over_rows<kVec>(seat, lanes, height, exchange, value[n][own], value[n + 1][own]);
      } else {
        sum_over_rows<kVec>(seat, lanes, height, exchange, value[n][own]);
      }
    }
    if (seat.row != 0 || !columns.any()) return;
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      store_values(columns, partials + n * channels, value[n][own]);
    }
  }
};

// Calls f(values...) with what an array of pointers points to.
template <int kValues, typename Acc, typename F, int... kPlace>
__device__ __forceinline__ void with_all(
    Acc* const (&values)[kValues], const F& f, std::integer_sequence<int, kPlace...>) {
  if constexpr (sizeof...(kPlace) > 0) f(*values[kPlace]...);
}

// Calls sum_means(means...) with the means of all moments among the totals of a pass, then
// sum_plain(sums...) with all plain sums: sums that are exchanged together wait only once.
template <int kMoments, int kPlainSums, typename Acc, typename Record, typename F, typename G>
__device__ __forceinline__ void sum_together(
    Record& total, const F& sum_means, const G& sum_plain) {
  Acc* means[kMoments + 1];
  Acc* plain[kPlainSums + 1];
  int m = 0, s = 0;
  each(
      [&](auto, auto& field) {
        if constexpr (std::is_same_v<decltype(field), Acc&>) plain[s++] = &field;
        if constexpr (std::is_same_v<decltype(field), Moments<Acc>&>) means[m++] = &field.mean;
      },
      total);
  with_all(means, sum_means, std::make_integer_sequence<int, kMoments>());
  with_all(plain, sum_plain, std::make_integer_sequence<int, kPlainSums>());
}

// The sum of those of a thread's values that are of columns that exist.
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ Acc sum_of_columns(const ColumnsOf& columns, const Acc (&value)[kVec]) {
  Acc existing[kVec];
#pragma unroll
  for (int v = 0; v < kVec; ++v) existing[v] = columns.has(v) ? value[v] : Acc(0);
  return sum_of(existing);
}

// Adds what a thread's values of a segment add to a total of it; moments begin with their mean.
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    Acc& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
  total += sum_of_columns(columns, value);
}
template <typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    Moments<Acc>& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
  total.mean += sum_of_columns(columns, value);
}
template <template <typename> typename Record, typename ColumnsOf, int kVec, typename Acc>
__device__ __forceinline__ void add_columns(
    Record<Acc>& total, const ColumnsOf& columns, const Acc (&value)[kVec]) {
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    if (columns.has(v)) add_element(total, value[v], columns.at(v));
  }
}

// What the moments of a segment need to know of it. Those of a long one are made of the moments of
// its warps, with as many values each as `counts` says, in shared memory.
template <typename Acc>
struct RowCounts {
  Acc inverse_length;
  Acc inverse_part;  // one over the number of values that the thread's lanes have
  Acc* counts;
};

template <typename Acc, typename ColumnsOf, int kItems>
__device__ __forceinline__ RowCounts<Acc> row_counts(
    int64_t length, int lanes, const ColumnsOf (&columns)[kItems], Acc* counts) {
  const Acc inverse_length = Acc(1) / Acc(length);
  Acc inverse_part = inverse_length;
  if (lanes > 32) {
    Acc part = Acc(0);
#pragma unroll
    for (int i = 0; i < kItems; ++i) part += Acc(columns[i].size());
    sum_in_warp(32, part);
    inverse_part = part > Acc(0) ? Acc(1) / part : Acc(0);
    if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = part;
  }
  return {inverse_length, inverse_part, counts};
}

// Makes moments of a segment's values of a sum over the thread's lanes, in moments.mean: the mean,
// and the squares of the distances to it, which are taken from the values in registers.
template <int kWarps, bool kKeepsLane, typename Acc, typename ColumnsOf, int kItems, int kVec>
__device__ __forceinline__ void moments_in_registers(
    Moments<Acc>& moments, const Acc (&value)[kItems][kVec], const ColumnsOf (&columns)[kItems],
    bool valid, int lanes, int lane, Acc* shared, const RowCounts<Acc>& counts) {
  moments = {moments.mean * counts.inverse_part, Acc(0)};
  Acc rest = Acc(0);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const bool active = valid && columns[i].any();
    Acc distances[kVec];
    Acc squares[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      distances[v] = columns[i].has(v) ? value[i][v] - moments.mean : Acc(0);
      squares[v] = square(distances[v]);
    }
    if (active) rest += sum_of(distances);
    if (active) moments.m2 += sum_of(squares);
  }
  sum_in_lanes<kKeepsLane>(lanes, lane, moments.m2, rest);
  correct(moments, rest, counts.inverse_part);
  if (lanes > 32) {
    moments_over_warps<kWarps>(shared, counts.counts, counts.inverse_length, moments);
  }
}

}  // namespace fusegen
