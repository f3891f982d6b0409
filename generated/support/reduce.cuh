// Sums and moments over the threads of a block, always in the same order: results are bitwise
// reproducible.
//
// A block is a multiple of 32 threads: of blockDim.x lanes (a power of two up to 32) and blockDim.y
// rows, or of one row that is divided as a Seat says.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "launch.cuh"

namespace fusegen {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int warp_count() { return (blockDim.x * blockDim.y + 31) / 32; }

// Mean and sum of squared distances to it, of a number of values that the caller keeps.
template <typename Acc>
struct Moments {
  Acc mean;
  Acc m2;
};

// Sums of values around a pilot, which must be one of them: then the squares are at most as many
// times too large as there are values, and the deviations that are taken out of them do not cancel
// (Chan, Golub and LeVeque 1983, section 3).
template <typename Acc>
struct PilotSums {
  Acc pilot;
  Acc sum;
  Acc squares;
};

template <typename Acc>
__device__ __forceinline__ void add_value(PilotSums<Acc>& sums, Acc value) {
  const Acc distance = value - sums.pilot;
  sums.sum += distance;
  sums.squares += distance * distance;
}

// Adds `count` values that have these moments; the pilot may be the mean of some of them.
template <typename Acc>
__device__ __forceinline__ void add_values(PilotSums<Acc>& sums, Moments<Acc> part, Acc count) {
  const Acc distance = part.mean - sums.pilot;
  sums.sum += count * distance;
  sums.squares += part.m2 + count * distance * distance;
}

// Squares without a part of them. Those that have left the range stay infinite, as in PyTorch's
// kernels, which gives a reciprocal deviation of zero: infinity less infinity would be NaN.
template <typename Acc>
__device__ __forceinline__ Acc without(Acc squares, Acc part) {
  return squares < Acc(INFINITY) ? squares - part : squares;
}

template <typename Acc>
__device__ __forceinline__ Moments<Acc> moments_of(const PilotSums<Acc>& sums, Acc count) {
  if (count == Acc(0)) return {Acc(0), Acc(0)};
  const Acc distance = sums.sum / count;
  const Acc m2 = without(sums.squares, sums.sum * distance);
  return {sums.pilot + distance, m2};
}

// Sums N values of each array over those threads of a warp that have the same columns. Once a
// block: to unroll such loops would only cost time, of the compiler most of all.
template <int N, int kArrays, typename Acc>
__device__ __forceinline__ void sum_over_rows_of_warp(Acc* const (&arrays)[kArrays]) {
#pragma unroll 1
  for (int offset = 16; offset >= int(blockDim.x); offset /= 2) {
#pragma unroll
    for (int i = 0; i < kArrays * N; ++i) {
      arrays[i / N][i % N] += __shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset);
    }
  }
}

// Sums N values of each array over the block's rows; every thread of a column gets the result.
// `shared` holds warp_count() * blockDim.x * N values for each array.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_y(Acc* shared, Acc (&first)[N], More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  Acc* const arrays[kArrays] = {first, more...};
  sum_over_rows_of_warp<N>(arrays);
  const int width = blockDim.x;
  const int lane = thread_index() % 32;
  const int warp = thread_index() / 32;
  const int sums = kArrays * width * N;  // of one warp
  __syncthreads();
  if (lane < width) {
#pragma unroll
    for (int i = 0; i < kArrays * N; ++i) {
      shared[warp * sums + (i / N * width + lane) * N + i % N] = arrays[i / N][i % N];
    }
  }
  __syncthreads();
  // One thread a sum: if every thread added up its own, they would read the same values over again.
#pragma unroll 1
  for (int i = thread_index(); i < sums; i += blockDim.x * blockDim.y) {
    Acc total = shared[i];
#pragma unroll 1
    for (int other = 1; other < warp_count(); ++other) total += shared[other * sums + i];
    shared[i] = total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kArrays * N; ++i) {
    arrays[i / N][i % N] = shared[(i / N * width + threadIdx.x) * N + i % N];
  }
}

// Takes what is left of the distances to a rounded mean out of mean and squares (the corrected two-
// pass algorithm, Chan, Golub and LeVeque 1983, section 3): equal values have no variance.
template <typename Acc>
__device__ __forceinline__ void correct(Moments<Acc>& moments, Acc distances, Acc inverse_count) {
  const Acc rest = distances * inverse_count;
  const Acc m2 = without(moments.m2, distances * rest);
  moments = {moments.mean + rest, m2 < Acc(0) ? Acc(0) : m2};
}

// Brings the moments of parts together (Chan, Golub and LeVeque 1983, section 3). In column v the
// thread's part has count(v) values; inverse(v) is one over those of all parts. sum(x, ...) adds up
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

// The moments over the block's rows of count(v) values of each thread, total(v) of them altogether;
// every thread of a column gets the result. `shared` holds 2 warp_count() * blockDim.x * N values.
template <int N, typename Acc, typename Count, typename Total>
__device__ __forceinline__ void moments_over_y(
    Acc* shared, Moments<Acc> (&moments)[N], const Count& count, const Total& total) {
  Acc inverse[N];
#pragma unroll
  for (int v = 0; v < N; ++v) inverse[v] = Acc(1) / total(v);
  moments_of_parts(
      moments, count, [&](int v) { return inverse[v]; },
      [&](auto&... values) { sum_over_y<N>(shared, values...); });
}

// The sum of a thread's own values, as a tree: equal values give their exact multiple.
template <int N, typename Acc>
__device__ __forceinline__ Acc sum_of(const Acc (&value)[N]) {
  Acc sum[N];
#pragma unroll
  for (int v = 0; v < N; ++v) sum[v] = value[v];
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
    for (int v = 0; v < half; ++v) sum[v] += sum[v + half];
  }
  return sum[0];
}

// Where a thread of a row kernel is. A segment has `lanes` neighbouring threads of a warp, or all
// of the block. Segments follow each other, `across` of one row, then those of the next, for
// `height` rows. What a warp has left behind its last segment, and a block behind its last row, is
// not taken.
struct Seat {
  int lane;     // of its segment
  int segment;  // of `across`
  int row;      // of `height`
  int slot;     // the thread's number among those that are taken
  bool taken;
};

// kShort: whether segments may have less than a block.
template <bool kShort>
__device__ __forceinline__ Seat seat_of(int thread, int lanes, int across, int height) {
  if (!kShort || lanes > 32) return {thread, 0, 0, thread, true};
  const int a_warp = 32 / lanes;
  const int place = thread % 32 / lanes;
  const int lane = thread % 32 % lanes;
  const int number = thread / 32 * a_warp + place;
  const int row = number / across;
  return {lane, number % across, row, number * lanes + lane, place < a_warp && row < height};
}

// Sums each array over the `height` rows that a block's seats are of, at least three, with `slots`
// seats each; the threads of the first one get the results. `shared` holds blockDim.x * N values
// for each array.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_rows(
    const Seat& seat, int slots, int height, Acc* shared, Acc (&first)[N], More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  Acc* const arrays[kArrays] = {first, more...};
  Acc* mine = shared + seat.slot;
  // What the second half of the rows has is added to the first. A call writes a slot once, and
  // comes to two barriers at least: one of them is between who reads a slot and who writes it next.
#pragma unroll 1
  for (int rows = height, half; rows > 1; rows = half) {
    half = (rows + 1) / 2;
    if (seat.taken && seat.row >= half && seat.row < rows) {
#pragma unroll
      for (int i = 0; i < kArrays * N; ++i) mine[i * blockDim.x] = arrays[i / N][i % N];
    }
    __syncthreads();
    if (seat.taken && seat.row + half < rows) {
#pragma unroll
      for (int i = 0; i < kArrays * N; ++i) {
        arrays[i / N][i % N] += mine[i * blockDim.x + half * slots];
      }
    }
  }
}

// How the values of several threads become one; reductions.cuh has others.
struct Add {
  template <typename Acc>
  static __device__ __forceinline__ Acc identity() {
    return Acc(0);
  }
  template <typename Acc>
  static __device__ __forceinline__ Acc combine(Acc x, Acc y) {
    return x + y;
  }
};

// The same function of a number, or of each number of a record: a shuffle moves one.
template <typename T, typename F>
__device__ __forceinline__ T map_values(const T& value, const F& f) {
  if constexpr (std::is_floating_point_v<T>) {
    return f(value);
  } else {
    return value.map(f);
  }
}

// Reduces each value over neighbouring threads, as many as a power of two; over those of a warp
// where `lanes` is more. Each of them gets the results, to the same bits. A value is a number, or a
// record of reductions.cuh.
template <typename Op, typename Acc, typename... More>
__device__ __forceinline__ void reduce_in_warp(int lanes, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (offset >= lanes) continue;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const Acc other = map_values(
          *values[i], [&](auto own) { return __shfl_xor_sync(kAllLanes, own, offset); });
      *values[i] = Op::combine(*values[i], other);
    }
  }
}
template <typename Acc, typename... More>
__device__ __forceinline__ void sum_in_warp(int lanes, Acc& first, More&... more) {
  reduce_in_warp<Add>(lanes, first, more...);
}

// The same over the block's warps, of values that each thread of a warp has alike; every thread
// gets the results, to the same bits. The block has one row; `shared` holds 32 of each value.
template <typename Op, int kMostWarps, typename Acc, typename... More>
__device__ __forceinline__ void reduce_over_warps(Acc* shared, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) shared[i * 32 + threadIdx.x / 32] = *values[i];
  }
  __syncthreads();
  const int warp = threadIdx.x % kMostWarps;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    *values[i] = warp < warp_count() ? shared[i * 32 + warp] : Op::template identity<Acc>();
  }
  reduce_in_warp<Op>(kMostWarps, first, more...);
}

// The moments of what all warps of the block have, from each one's and their counts; every thread
// gets the result. `shared` holds 64 values, none of the counts.
template <int kMostWarps, typename Acc>
__device__ __forceinline__ void moments_over_warps(
    Acc* shared, const Acc* counts, Acc inverse_count, Moments<Acc>& moments) {
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = moments.mean;
    shared[32 + threadIdx.x / 32] = moments.m2;
  }
  __syncthreads();
  const int warp = threadIdx.x % kMostWarps;
  const bool exists = warp < warp_count();
  const Acc count = exists ? counts[warp] : Acc(0);
  Moments<Acc> part[1] = {};
  if (exists) part[0] = {shared[warp], shared[32 + warp]};
  moments_of_parts(
      part, [&](int) { return count; }, [&](int) { return inverse_count; },
      [](auto&... values) { sum_in_warp(kMostWarps, values[0]...); });
  moments = part[0];
}

// Reduces each value over the `lanes` neighbouring threads that share a segment, or over those of a
// warp where lanes are more; each of them gets the results, to the same bits. lanes is a power of
// two up to 32, or less than 16, and the segments are next to each other from a warp's first thread
// on; or it is blockDim.x, a multiple of 32. `lane` is the thread's number among them; without
// kKept it is found again, which takes long, but no register until then.
template <typename Op, bool kKept = true, typename Acc, typename... More>
__device__ __forceinline__ void reduce_in_lanes(int lanes, int lane, Acc& first, More&... more) {
  constexpr int kValues = 1 + sizeof...(More);
  Acc* const values[kValues] = {&first, &more...};
  if (lanes < 32 && (lanes & (lanes - 1)) != 0) {
    // To the first lane, and from there to all. The division of 16 bits is the cheap one.
    if (!kKept) lane = uint16_t(threadIdx.x % 32) % uint16_t(lanes);
    const int left = lanes - lane;
    // A step more is harmless, and where registers are short better than a branch.
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
      if (kKept && offset == 8 && lanes < 8) continue;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const Acc other = map_values(
            *values[i], [&](auto own) { return __shfl_down_sync(kAllLanes, own, offset); });
        if (offset < left) *values[i] = Op::combine(*values[i], other);
      }
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      *values[i] = map_values(
          *values[i], [&](auto own) { return __shfl_sync(kAllLanes, own, threadIdx.x - lane); });
    }
    return;
  }
  reduce_in_warp<Op>(lanes, first, more...);
}
template <bool kKept = true, typename Acc, typename... More>
__device__ __forceinline__ void sum_in_lanes(int lanes, int lane, Acc& first, More&... more) {
  reduce_in_lanes<Add, kKept>(lanes, lane, first, more...);
}

// The same over all lanes of a segment, of several warps too; `shared` as in reduce_over_warps().
template <typename Op, int kMostWarps, bool kKept = true, typename Acc, typename... More>
__device__ __forceinline__ void reduce_over_lanes(
    int lanes, int lane, Acc* shared, Acc& first, More&... more) {
  reduce_in_lanes<Op, kKept>(lanes, lane, first, more...);
  if (lanes > 32) reduce_over_warps<Op, kMostWarps>(shared, first, more...);
}
template <int kMostWarps, bool kKept = true, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_lanes(
    int lanes, int lane, Acc* shared, Acc& first, More&... more) {
  reduce_over_lanes<Add, kMostWarps, kKept>(lanes, lane, shared, first, more...);
}

// The same over a block of one row; every thread gets the results. `shared` holds 32 of each value.
template <typename Op, typename Acc, typename... More>
__device__ __forceinline__ void reduce_over_block(Acc* shared, Acc& first, More&... more) {
  reduce_in_warp<Op>(32, first, more...);
  reduce_over_warps<Op, 32>(shared, first, more...);
}
template <typename Acc, typename... More>
__device__ __forceinline__ void sum_over_block(Acc* shared, Acc& first, More&... more) {
  reduce_over_block<Add>(shared, first, more...);
}

}  // namespace fusegen
