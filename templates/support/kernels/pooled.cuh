// The pooling kernel: the last pass over memory of a program whose results are those of windows.
//
// A thread has some neighbouring channels, and one window after the other. It computes the elements
// that a window sees, which may be those of other windows, too, and keeps their mean or the largest
// of them: the values in front of the windows are never in memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../devices.cuh"
#include "../launch.cuh"
#include "../windows.cuh"
#include "elements.cuh"
#include "program.cuh"

namespace fusegen {

constexpr int kPooledThreads = 256;

template <class P, int kPass, int kVec>
__global__ void __launch_bounds__(kPooledThreads) pooled_kernel(
    const __grid_constant__ P p, const __grid_constant__ WindowGrid grid, int windows) {
  using Acc = typename P::Acc;
  using Vectors = typename P::template Reads<VectorsOf<kVec>::template Loaded>;
  constexpr int kDimensions = WindowGrid::kDimensions;
  static_assert(Terms<P, kPass>::kFields == 0);
  wait_for_earlier_kernels();
  const int64_t first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kVec;
  if (first >= p.channels) return;
  const Columns<kVec, true> columns{first, 1, kVec};
  Known<P> known[kVec];
  set_scalars(p, known);
  load_channels<kPass, 1u << kPass>(p, columns, true, known);
  derive_channels(p, known);

  [[maybe_unused]] const int64_t group = first / p.group_length;  // of all of the thread's channels
  const int channels = int(p.channels), step = int(gridDim.y * blockDim.y);
  for (int at = int(blockIdx.y * blockDim.y + threadIdx.y); at < windows; at += step) {
    int begin[kDimensions];
    const int image = grid.split(at, grid.out, grid.by_out, begin);
#pragma unroll
    for (int d = 0; d < kDimensions; ++d) begin[d] = begin[d] * grid.stride[d] - grid.padding[d];
    if constexpr (P::kOfSamples) set_samples<kPass>(p, columns, true, image, known);
    TapsOfWindow taps(grid, image, begin);
    Acc value[kVec] = {};
    int best[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if constexpr (P::kPooling == Pooling::kMax) value[v] = -Acc(INFINITY);
      best[v] = taps.tap();
    }
    for (int left = taps.count(); left > 0; left -= kRowsInFlight) {
      Vectors in[kRowsInFlight];
      int row[kRowsInFlight], tap[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (u >= left) break;
        row[u] = taps.row(), tap[u] = taps.tap();
        taps.next();
        each(LoadVectors<P::kReadBy[kPass], Columns<kVec, true>>{columns, wide(row[u], channels), 0},
             in[u], p.reads);
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (u >= left) break;
        typename P::Row of_row = {};
        p.template row_tensors<kPass>([&](auto uses, auto from, bool present, auto field) {
          if constexpr (has_bit(decltype(uses)::passes, kPass)) {
            of_row.*field = load_value<Acc>(from, row[u], present);
          }
        });
        typename P::Group of_group = {};
        p.template group_tensors<kPass>([&](auto uses, auto* from, bool present, auto field) {
          if constexpr (has_bit(decltype(uses)::passes, kPass)) {
            of_group.*field = load_value<Acc>(from, wide(row[u], int(p.groups)) + group, present);
          }
        });
        typename P::Drawn drawn[kVec];
        draw(p, columns, wide(row[u], channels), drawn);
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          Known<P>& k = known[v];
          static_cast<typename P::Drawn&>(k) = drawn[v];
          static_cast<typename P::Row&>(k) = of_row;
          static_cast<typename P::Group&>(k) = of_group;
          p.derive_row(k);
          p.derive_group(k);
          Elements<P> x;
          each(TakeElement<P::kReadBy[kPass]>{v}, x, in[u]);
          typename P::Cached cached;
          Terms<P, kPass> term;
          Results<P> y;
          p.template element<kPass, 0u>(x, k, cached, term, y);
          Acc made = 0;
          each(
              [&](auto i, const Acc& result) {
                if constexpr (decltype(i)::value == 0) made = result;
              },
              y);
          if constexpr (P::kPooling == Pooling::kMean) {
            value[v] += made;
          } else if (made > value[v] || made != made) {
            value[v] = made;
            best[v] = tap[u];
          }
        }
      }
    }
    if constexpr (P::kPooling == Pooling::kMean) {
      const int count = grid.count(begin);
#pragma unroll
      for (int v = 0; v < kVec; ++v) value[v] = mean_of(value[v], count);
    }
    each(
        [&](auto i, auto* to) {
          if constexpr (decltype(i)::value == 0) {
            store_values(columns, to + wide(at, channels), value);
          } else {
            Pack<Tap, kVec> packed;
#pragma unroll
            for (int v = 0; v < kVec; ++v) packed[v] = Tap(best[v]);
            store_pack(columns, reinterpret_cast<Tap*>(to) + wide(at, channels), packed);
          }
        },
        p.writes);
  }
}

template <int kPass, int kVec, class P>
cudaError_t launch_pooled(const P& p, const LaunchContext& context) {
  const WindowGrid grid = WindowGrid::of(p.windows);
  const int64_t windows = p.rows / grid.positions() * grid.windows();
  const int64_t vectors = (p.channels + kVec - 1) / kVec;
  unsigned across = 1;
  while (across < vectors && across < 64) across *= 2;
  const unsigned down = kPooledThreads / across;
  const int64_t columns = (vectors + across - 1) / across;
  const int64_t wanted = 16 * context.target.multiprocessors / columns + 1;
  const int64_t rows = (windows + down - 1) / down;
  const dim3 blocks(unsigned(columns), unsigned(rows < wanted ? rows : wanted));
  return launch(pooled_kernel<P, kPass, kVec>, blocks, dim3(across, down), 0, context.stream, p,
                grid, int(windows));
}

}  // namespace fusegen
