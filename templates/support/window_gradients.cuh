// Gradients that come back through windows to the positions that these see.
#pragma once

#include <cstdint>
#include <type_traits>

#include "windows.cuh"

namespace fusegen {

// In Reads its pointer gives each row what comes to it through the windows that see it, added up in
// their order.
template <typename E, Pooling kPooling>
struct Pooled {
  E element;
};
template <typename E, Pooling kPooling>
struct ElementOfPart<Pooled<E, kPooling>> {
  using type = Accumulate<E>;
};

template <typename E, Pooling kPooling>
struct PooledPointer {
  const E* at;
  const Tap* taps;  // null but for the largest
  int64_t channels;
  ExactDivisor by_channels;
  WindowGrid grid;
};
template <typename E, Pooling kPooling>
struct PointerTo<Pooled<E, kPooling>> {
  using Read = PooledPointer<E, kPooling>;
};
template <typename E, Pooling kPooling>
struct PointedBy<PooledPointer<E, kPooling>> {
  using type = Accumulate<E>;
};

// The pointers of the launcher's arguments, which convert to what they initialise.
struct PooledFrom {
  const void* at;
  const void* taps;
  int64_t channels;
  const Windows* windows;

  template <typename E, Pooling kPooling>
  operator PooledPointer<E, kPooling>() const {
    return {static_cast<const E*>(at), static_cast<const Tap*>(taps), channels,
            ExactDivisor::of(channels), WindowGrid::of(windows)};
  }
};
template <class Sizes>
PooledFrom pooled_from(const void* at, const void* taps, const Sizes& sizes) {
  return {at, taps, sizes.channels, sizes.windows};
}

// N neighbours of a tensor, of which the first is at a multiple of N.
template <int N, typename E>
__device__ __forceinline__ auto load_neighbours(const E* from) {
  if constexpr (N == 1) {
    Pack<E, 1> one;
    one[0] = read(from);
    return one;
  } else {
    return load_words<N>(from, [](auto* word) { return read(word); });
  }
}

// How many windows' gradients are loaded before the first is used.
constexpr int kWindowsInFlight = 2;

// What comes to N neighbours of a row from `column` on, which is a multiple of N, as are rows.
template <int N, typename E, Pooling kPooling, typename Acc = Accumulate<E>>
__device__ __forceinline__ void add_windows(
    const PooledPointer<E, kPooling>& from, int row, int64_t column, Acc (&sum)[N]) {
  constexpr bool kTaps = kPooling == Pooling::kMax;
  const WindowGrid& grid = from.grid;
  const WindowsOfPosition windows(grid, row);
  decltype(load_neighbours<N>(from.at)) gradient[kWindowsInFlight];
  decltype(load_neighbours<N>(from.taps)) taps[kWindowsInFlight];
  const auto load = [&](int u, int window) {
    const int64_t element = wide(window, int(from.channels)) + column;
    gradient[u] = load_neighbours<N>(from.at + element);
    if constexpr (kTaps) taps[u] = load_neighbours<N>(from.taps + element);
  };
  // tap: of the largest; count: of the positions of a mean.
  const auto add = [&](int u, int tap, int count) {
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const Acc own = widen(gradient[u][v]);
      if constexpr (kTaps) {
        if (taps[u][v] == tap) sum[v] += own;
      } else {
        sum[v] += mean_of(own, count);
      }
    }
  };
  if (grid.apart) {
    const int tap = windows.only_tap();
    if (tap < 0) return;
    const auto& at = windows.first;
    load(0, windows.row(at[0], at[1], at[2]));
    add(0, tap, kTaps ? 1 : windows.positions(at[0], at[1], at[2]));
    return;
  }
  const auto add_line = [&](int outer, int inner) {
    const int tap_outer = windows.tap(0, outer), tap_inner = windows.tap(1, inner);
    if (tap_outer < 0 || tap_inner < 0) return;
    const int tap_of_line = (tap_outer * grid.kernel[1] + tap_inner) * grid.kernel[2];
    const int line = windows.row(outer, inner, 0);
    for (int begin = windows.first[2]; begin <= windows.last[2]; begin += kWindowsInFlight) {
      int tap[kWindowsInFlight];
#pragma unroll
      for (int u = 0; u < kWindowsInFlight; ++u) {
        tap[u] = begin + u <= windows.last[2] ? windows.tap(2, begin + u) : -1;
        if (tap[u] >= 0) load(u, line + begin + u);
      }
#pragma unroll
      for (int u = 0; u < kWindowsInFlight; ++u) {
        if (tap[u] < 0) continue;
        add(u, tap_of_line + tap[u], kTaps ? 1 : windows.positions(outer, inner, begin + u));
      }
    }
  };
#pragma unroll 1
  for (int outer = windows.first[0]; outer <= windows.last[0]; ++outer) {
#pragma unroll 1
    for (int inner = windows.first[1]; inner <= windows.last[1]; ++inner) add_line(outer, inner);
  }
}

// What comes to an element of a tensor of full size. Not in line, and for vectors of several rows
// alone: in line it would be most of a kernel.
template <typename E, Pooling kPooling>
FUSEGEN_CALLED Accumulate<E> pooled_element(
    const PooledPointer<E, kPooling>& from, int64_t element) {
  const int64_t row = quotient(element, from.channels);
  Accumulate<E> sum[1] = {};
  add_windows<1>(from, int(row), element - row * from.channels, sum);
  return sum[0];
}

// N neighbours from element `first` of a tensor of full size on; has: which of them exist.
template <int N, typename E, Pooling kPooling, typename Has>
__device__ __forceinline__ Loaded<Accumulate<E>, N> load_pooled(
    const PooledPointer<E, kPooling>& from, int64_t first, const Has& has) {
  Accumulate<E> sum[N] = {};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (has(v)) sum[v] = pooled_element(from, first + v);
  }
  return loaded(sum);
}

// As load_pack() of other pointers. A vector that is of one row begins in front of its end.
template <int N, typename E, Pooling kPooling>
__device__ __forceinline__ auto load_pack(
    const Columns<N, true>& columns, const PooledPointer<E, kPooling>& tensor, int64_t row,
    int64_t) {
  if (tensor.channels % N == 0 && columns.first < tensor.channels) {
    Accumulate<E> sum[N] = {};
    add_windows<N>(tensor, tensor.by_channels.quotient(row), columns.first, sum);
    return loaded(sum);
  }
  return load_pooled<N>(tensor, row + columns.first, [](int) { return true; });
}
template <template <int> typename ColumnsOf, int N, typename E, Pooling kPooling>
__device__ __forceinline__ auto load_pack(
    const ColumnsOf<N>& columns, const PooledPointer<E, kPooling>& tensor, int64_t row, int64_t) {
  return load_pooled<N>(tensor, row + columns.first, [&](int v) { return columns.has(v); });
}
template <int kVec, class Here, typename E, Pooling kPooling>
__device__ __forceinline__ auto load_pack(
    const VectorOverRows<kVec, Here>& columns, const PooledPointer<E, kPooling>& tensor,
    int64_t row, int64_t vector_end) {
  return load_pack(columns.here, tensor, row, vector_end);
}

}  // namespace fusegen
