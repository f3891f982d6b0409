// The row reduction: the sums of one pass over each row, or over each group of a row's channels,
// and what follows from them. The next pass reads the elements once more.
//
// P::kUnit[kPass] says whether it is rows or groups; below, a segment is either. A segment has a
// block, or a cluster where segments are few and long, or some lanes of a warp where it is short.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <cuda_runtime.h>

#include "../cluster.cuh"
#include "../devices.cuh"
#include "../launch.cuh"
#include "../reduce_lanes.cuh"
#include "../row_reduction_sums.cuh"
#include "../shapes.cuh"
#include "elements.cuh"
#include "program.cuh"

namespace fusegen {

constexpr int kRowReductionThreads = 256;
constexpr int kRowReductionVectors = 2;  // that a thread loads before it uses the first

// A record of sums with the terms of a thread's vector for each.
template <typename Acc, int kVec>
struct RowReductionTerms {
  template <typename Reduction>
  using Of = Acc[kVec];
};

// A vector of any tensor whose elements are at most as long as Acc, as it was loaded. It is
// converted where it is used: a conversion where it is loaded would wait for the memory.
template <typename Acc, int kVec>
struct alignas(16) AnyVector {
  unsigned word[kVec * sizeof(Acc) / sizeof(unsigned)];

  template <typename E>
  __device__ __forceinline__ void put(const Loaded<E, kVec>& loaded) {
    static_assert(sizeof(loaded) <= sizeof(word));
    memcpy(word, &loaded, sizeof(loaded));
  }
  template <typename E>
  __device__ __forceinline__ Loaded<E, kVec> get() const {
    Loaded<E, kVec> loaded;
    memcpy(&loaded, word, sizeof(loaded));
    return loaded;
  }
};

// Reduces the sums of the threads of a segment of `length` elements, of which this thread has
// `count`. All threads get the result. The reducer is as a SegmentReducer.
template <int kPlain, typename Reducer, typename Acc, typename Sums, typename AllTotals>
__device__ __forceinline__ void sums_over_segment(
    const Reducer& reducer, const Sums& sums, Acc count, Acc length, AllTotals& totals) {
  Acc plain[kPlain + 1];  // one more than there are sums, as an array has some element
  int s = 0;
  each(
      [&](auto, auto& total, const auto& sum) {
        if constexpr (std::is_same_v<decltype(sum), const Acc&>) {
          plain[s++] = sum;
        } else if constexpr (kCombinedValues<std::decay_t<decltype(sum)>> > 0) {
          total = sum;
          reducer.template reduce<Combine>(total);
        } else {
          total = moments_of(sum, count);
          moments_over_segment(reducer, total, count, length);
        }
      },
      totals, sums);
  // Two at a time, as there is shared memory for two.
#pragma unroll
  for (int i = 0; i + 1 < kPlain; i += 2) reducer.template reduce<Add>(plain[i], plain[i + 1]);
  if constexpr (kPlain % 2 == 1) reducer.template reduce<Add>(plain[kPlain - 1]);
  s = 0;
  each(
      [&](auto, auto& total) {
        if constexpr (std::is_same_v<decltype(total), Acc&>) total = plain[s++];
      },
      totals);
}

// kPacked: every row, and group of it, begins at a multiple of a vector. Where it does not, a
// thread has masked vectors, which its segment may share with the next one. vector_end: see
// load_pack(). lanes: threads of a block that share a segment, as a SegmentReducer has them.
template <class P, int kPass, int kVec, bool kPacked>
__global__ void __launch_bounds__(kRowReductionThreads) row_reduction_kernel(
    const __grid_constant__ P p, int64_t vector_end, int lanes) {
  using Acc = typename P::Acc;
  constexpr bool kByGroup = P::kUnit[kPass] == Unit::kGroup;
  static_assert(kByGroup || P::kUnit[kPass] == Unit::kRow);
  wait_for_earlier_kernels();
  const int64_t segments = kByGroup ? p.groups : 1;  // of a row
  const int64_t length = kByGroup ? p.group_length : p.channels;
  Acc* const shared = shared_memory<Acc>();
  const typename P::Scalars scalars = p.scalars();

  cluster_arrive();
  // The vectors of a segment are distributed over the threads of its blocks in a cyclic order.
  const int lane = threadIdx.x & (lanes - 1), at_once = blockDim.x / lanes;
  const int64_t stride = int64_t(gridDim.z) * lanes * kVec;
  const int offset = (blockIdx.z * lanes + lane) * kVec;
  // A cluster has several segments where there are more of them than clusters.
  const int64_t count = p.rows * segments;
  for (int64_t first = int64_t(blockIdx.x) * at_once; first < count;
       first += int64_t(gridDim.x) * at_once) {
    // Lanes behind the last segment do its work once more, as a shuffle needs all of a warp.
    const int64_t own = first + threadIdx.x / lanes;
    const bool exists = own < count;
    const int64_t item = exists ? own : count - 1;
    const int64_t row = item / segments;
    const int64_t segment = item - row * segments;
    const int64_t sample = P::kOfSamples ? quotient(row, p.sample_rows) : 0;

    // What is known of the segment. All tensors: the compiler drops those that nothing below uses.
    Known<P> known{scalars, {}, {}, {}};
    p.template row_tensors<kPass>([&](auto, auto pointer, bool present, auto field) {
      known.*field = load_value<Acc>(pointer, row, present);
    });
    p.derive_row(known);
    if constexpr (kByGroup) {
      p.template group_tensors<kPass>([&](auto, auto* pointer, bool present, auto field) {
        known.*field = load_value<Acc>(pointer, item, present);
      });
      p.derive_group(known);
    }

    Running<P, kPass> sums = {};
    int seen = 0;  // elements of this thread
    // A segment that does not begin with a vector may overlap with one more.
    const int64_t most = kPacked ? length : length + kVec - 1;
    for (int64_t base = 0; base < most; base += kRowReductionVectors * stride) {
      SegmentColumns<kVec, kPacked> columns[kRowReductionVectors];
      typename P::template Reads<VectorsOf<kVec>::template Loaded> in[kRowReductionVectors];
      // Vectors of the channel tensors that the elements of the pass need, at most one per field.
      constexpr int kMost = sizeof(typename P::Channel) / sizeof(Acc) + 1;
      AnyVector<Acc, kVec> channel_in[kRowReductionVectors][kMost];
#pragma unroll
      for (int u = 0; u < kRowReductionVectors; ++u) {
        columns[u] = segment_columns<kVec, kPacked>(
            row * p.channels, segment * length, (segment + 1) * length, base + u * stride + offset);
        if (!columns[u].any()) break;
        using ColumnsOf = SegmentColumns<kVec, kPacked>;
        each(
            LoadVectors<P::kReadBy[kPass], ColumnsOf>{columns[u], row * p.channels, vector_end},
            in[u], p.reads);
        if constexpr (kPacked) {
          int c = 0;
          p.template channel_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto) {
            if constexpr (has_bit(decltype(uses)::passes, kPass)) {
              if (present) channel_in[u][c].put(load_pack(columns[u], pointer, 0, vector_end));
              ++c;
            }
          });
        }
      }
#pragma unroll
      for (int u = 0; u < kRowReductionVectors; ++u) {
        if (!columns[u].any()) break;
        typename P::Channel channel[kVec] = {};
        int c = 0;
        p.template channel_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
          if constexpr (has_bit(decltype(uses)::passes, kPass)) {
            Acc value[kVec];
            if constexpr (kPacked) {
              using E = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
              widen_values(channel_in[u][c++].template get<E>(), present, value);
            } else {
              load_values(columns[u], pointer, present, value);
            }
#pragma unroll
            for (int v = 0; v < kVec; ++v) channel[v].*field = value[v];
          }
        });
        typename P::template Sums<kPass, RowReductionTerms<Acc, kVec>::template Of> terms;
        typename P::Drawn drawn[kVec];
        draw(p, columns[u], row * p.channels, drawn);
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          if (!columns[u].has(v)) continue;
          Known<P> k = known;
          static_cast<typename P::Channel&>(k) = channel[v];
          static_cast<typename P::Drawn&>(k) = drawn[v];
          p.derive_channel(k);
          if constexpr (!kByGroup && P::kGroupTensorsBy[kPass] > 0) {
            const int64_t group = columns[u].at(kPacked ? 0 : v) / p.group_length;
            p.template group_tensors<kPass>(
                [&](auto uses, auto* pointer, bool present, auto field) {
                  if constexpr (has_bit(decltype(uses)::passes, kPass)) {
                    k.*field = load_value<Acc>(pointer, row * p.groups + group, present);
                  }
                });
            p.derive_group(k);
          }
          if constexpr (P::kOfSamples) {
            p.template sample_tensors<kPass>(
                [&](auto uses, auto* pointer, bool present, auto field) {
                  if constexpr (has_bit(decltype(uses)::passes, kPass)) {
                    const int64_t at = sample * p.channels + columns[u].at(v);
                    k.*field = load_value<Acc>(pointer, at, present);
                  }
                });
            p.derive_sample(k);
          }
          Elements<P> x;
          each(TakeElement<P::kReadBy[kPass]>{v}, x, in[u]);
          typename P::Cached cached;
          Terms<P, kPass> term;
          Results<P> y;
          p.template element<kPass, 0u>(x, k, cached, term, y);
          each(
              [&](auto, auto& sum, auto& all, Acc one) {
                all[v] = one;
                if constexpr (!std::is_same_v<decltype(sum), ShiftedSums<Acc>&>) {
                  add_element(sum, one, columns[u].at(v));
                }
              },
              sums, terms, term);
        }
        // Moments only now, as their shift is a value of the first vector.
        each(
            [&](auto, auto& sum, const auto& all) {
              if constexpr (std::is_same_v<decltype(sum), ShiftedSums<Acc>&>) {
                if (seen == 0) sum.shift = one_of(columns[u], all);
#pragma unroll
                for (int v = 0; v < kVec; ++v) {
                  if (columns[u].has(v)) add_value(sum, all[v]);
                }
              }
            },
            sums, terms);
        seen += columns[u].size();
      }
    }

    Totals<P, kPass> total;
    sums_over_segment<count_of<P, kPass, Sum>()>(
        SegmentReducer<Acc>{shared, lanes}, sums, Acc(seen), Acc(length), total);
    p.template follow<kPass>(known, total);
    p.template finish<kPass>(known, total);
    if (lane == 0 && blockIdx.z == 0 && exists) {
      p.template results<kPass, false>([&](auto* pointer, auto field) {
        if (pointer != nullptr) store_value(pointer + item, known.*field);
      });
    }
  }
  cluster_wait();
}

template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_row_reduction(
    const P& p, const LaunchContext& context) {
  constexpr bool kByGroup = P::kUnit[kPass] == Unit::kGroup;
  constexpr int64_t kAtOnce = kRowReductionThreads * kRowReductionVectors * kVec;
  const int64_t groups = kByGroup ? p.groups : 1, length = p.channels / groups;
  dim3 grid = row_reduction_grid(
      context.shapes, p.rows, context.rows, groups, length, kAtOnce, context.target.most_cluster,
      context.target.multiprocessors);
  const int lanes = row_reduction_lanes(length, kVec, kPacked, grid.z, kRowReductionThreads);
  const int64_t blocks = ceil_div(p.rows * groups, kRowReductionThreads / lanes);
  grid.x = unsigned(std::min<int64_t>(grid.x, blocks));
  return launch(
      row_reduction_kernel<P, kPass, kVec, kPacked>, grid, dim3(kRowReductionThreads),
      kSegmentExchange * sizeof(typename P::Acc), context.stream, p,
      context.vector_end, lanes);
}

}  // namespace fusegen
