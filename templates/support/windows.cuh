// Windows over the positions of images, and the gradients that come back through them.
//
// A row is a position of an image; behind the windows a row is a window. A tap is one of the
// positions that a window sees, by its number in the kernel, in the order of memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/program.cuh"

namespace fusegen {

// The tap that a largest element came from; a kernel has at most as many taps as it has values.
using Tap = unsigned char;

// A number that others below 2^31 are divided by, with a multiplication and a shift: Granlund and
// Montgomery, "Division by invariant integers using multiplication", 1994, figure 4.1.
struct Divisor {
  unsigned factor = 1, shift = 0;

  static Divisor of(int64_t number) {
    Divisor found;
    while ((int64_t(1) << found.shift) < number) ++found.shift;
    const uint64_t beyond = (uint64_t(1) << found.shift) - uint64_t(number);
    found.factor = unsigned((beyond << 32) / uint64_t(number) + 1);
    return found;
  }
  __device__ __forceinline__ int quotient(int value) const {
    const auto high = unsigned((uint64_t(unsigned(value)) * factor) >> 32);
    return int((high + unsigned(value)) >> shift);
  }
};

// Windows in the form in which kernels use them. Rows in front and behind are below 2^31.
struct WindowGrid {
  static constexpr int kDimensions = kPooledDimensions;
  int in[kDimensions], out[kDimensions], kernel[kDimensions], stride[kDimensions];
  int padding[kDimensions], dilation[kDimensions];
  Divisor by_in[kDimensions], by_out[kDimensions], by_stride[kDimensions], by_dilation[kDimensions];
  int counts_padding, divisor;

  // windows: null where a launch is only explained.
  static WindowGrid of(const Windows* windows) {
    const Windows given = windows == nullptr ? Windows() : *windows;
    WindowGrid grid;
    for (int d = 0; d < kDimensions; ++d) {
      grid.in[d] = int(given.in[d]), grid.out[d] = int(given.out[d]);
      grid.kernel[d] = int(given.kernel[d]), grid.stride[d] = int(given.stride[d]);
      grid.padding[d] = int(given.padding[d]), grid.dilation[d] = int(given.dilation[d]);
      grid.by_in[d] = Divisor::of(given.in[d]), grid.by_out[d] = Divisor::of(given.out[d]);
      grid.by_stride[d] = Divisor::of(given.stride[d]);
      grid.by_dilation[d] = Divisor::of(given.dilation[d]);
    }
    grid.counts_padding = int(given.counts_padding), grid.divisor = int(given.divisor);
    return grid;
  }

  __host__ __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  __host__ __device__ int64_t positions() const { return int64_t(in[0]) * in[1] * in[2]; }
  __host__ __device__ int64_t windows() const { return int64_t(out[0]) * out[1] * out[2]; }

  // The image of a row, and where in it the row is. sizes, by: those of the positions in front of
  // the windows, or of the windows.
  __device__ __forceinline__ int split(
      int row, const int (&sizes)[kDimensions], const Divisor (&by)[kDimensions],
      int (&at)[kDimensions]) const {
#pragma unroll
    for (int d = kDimensions - 1; d >= 0; --d) {
      const int outer = by[d].quotient(row);
      at[d] = row - outer * sizes[d];
      row = outer;
    }
    return row;
  }
  // The row of a place in an image, of so many along each dimension.
  __device__ __forceinline__ static int64_t row_of(
      int image, const int (&sizes)[kDimensions], int first, int second, int third) {
    return ((int64_t(image) * sizes[0] + first) * sizes[1] + second) * sizes[2] + third;
  }

  // How many positions the mean of a window is over.
  __device__ __forceinline__ int count(const int (&window)[kDimensions]) const {
    if (divisor != 0) return divisor;
    int count = 1;
#pragma unroll
    for (int d = 0; d < kDimensions; ++d) {
      int begin = window[d] * stride[d] - padding[d];
      int end = min(begin + kernel[d], in[d] + padding[d]);
      if (!counts_padding) begin = max(begin, 0), end = min(end, in[d]);
      count *= end - begin;
    }
    return count;
  }
};

// sum / count, without a division where the inverse is exact.
template <typename Acc>
__device__ __forceinline__ Acc mean_of(Acc sum, int count) {
  return (count & (count - 1)) == 0 ? sum * (Acc(1) / Acc(count)) : sum / Acc(count);
}

// Stands for the element type of the gradient of what windows became. In Reads its pointer gives
// each row what comes to it through the windows that see it, added up in their order.
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
            WindowGrid::of(windows)};
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

// What comes to N neighbours of a row from `column` on, which is a multiple of N, as are rows.
template <int N, typename E, Pooling kPooling, typename Acc = Accumulate<E>>
__device__ __forceinline__ void add_windows(
    const PooledPointer<E, kPooling>& from, int row, int64_t column, Acc (&sum)[N]) {
  constexpr int kDimensions = WindowGrid::kDimensions;
  const WindowGrid& grid = from.grid;
  int at[kDimensions], first[kDimensions], last[kDimensions];
  const int image = grid.split(row, grid.in, grid.by_in, at);
#pragma unroll
  for (int d = 0; d < kDimensions; ++d) {
    at[d] += grid.padding[d];
    last[d] = min(grid.by_stride[d].quotient(at[d]), grid.out[d] - 1);
    const int beyond = at[d] - grid.dilation[d] * (grid.kernel[d] - 1);
    first[d] = beyond > 0 ? grid.by_stride[d].quotient(beyond + grid.stride[d] - 1) : 0;
  }
  int window[kDimensions];
  for (window[0] = first[0]; window[0] <= last[0]; ++window[0]) {
    for (window[1] = first[1]; window[1] <= last[1]; ++window[1]) {
      for (window[2] = first[2]; window[2] <= last[2]; ++window[2]) {
        bool sees = true;
        int tap = 0;
#pragma unroll
        for (int d = 0; d < kDimensions; ++d) {
          const int reach = at[d] - window[d] * grid.stride[d];
          const int own = grid.by_dilation[d].quotient(reach);
          sees = sees && own * grid.dilation[d] == reach && own < grid.kernel[d];
          tap = tap * grid.kernel[d] + own;
        }
        if (!sees) continue;
        const int64_t element =
            grid.row_of(image, grid.out, window[0], window[1], window[2]) * from.channels + column;
        auto gradient = load_neighbours<N>(from.at + element);
        if constexpr (kPooling == Pooling::kMax) {
          auto taps = load_neighbours<N>(from.taps + element);
#pragma unroll
          for (int v = 0; v < N; ++v) {
            if (taps[v] == tap) sum[v] += widen(gradient[v]);
          }
        } else {
          const int count = grid.count(window);
#pragma unroll
          for (int v = 0; v < N; ++v) sum[v] += mean_of(Acc(widen(gradient[v])), count);
        }
      }
    }
  }
}

// N neighbours from element `first` of a tensor of full size on; has: which of them exist.
template <int N, typename E, Pooling kPooling, typename Has>
__device__ __forceinline__ Loaded<Accumulate<E>, N> load_pooled(
    const PooledPointer<E, kPooling>& from, int64_t first, const Has& has) {
  using Acc = Accumulate<E>;
  Acc sum[N] = {};
  int64_t row = quotient(first, from.channels);
  int64_t column = first - row * from.channels;
  if (from.channels % N == 0 && has(0) && has(N - 1)) {
    add_windows<N>(from, int(row), column, sum);
    return loaded(sum);
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    Acc one[1] = {};
    if (has(v)) add_windows<1>(from, int(row), column, one);
    sum[v] = one[0];
    if (++column == from.channels) column = 0, ++row;
  }
  return loaded(sum);
}

// As load_pack() of other pointers.
template <int N, typename E, Pooling kPooling>
__device__ __forceinline__ auto load_pack(
    const Columns<N, true>& columns, const PooledPointer<E, kPooling>& tensor, int64_t row,
    int64_t) {
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
