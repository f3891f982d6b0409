// Windows over the positions of images.
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

// A number by which multiples of it are divided, with quotients below 2^32: without its powers of
// two it has an inverse modulo 2^32.
struct ExactDivisor {
  unsigned inverse = 1, shift = 0;

  static ExactDivisor of(int64_t number) {
    ExactDivisor found;
    while (number > 1 && number % 2 == 0) number /= 2, ++found.shift;
    for (int bits = 1; bits < 32; bits *= 2) {  // Newton's: twice as many bits are right
      found.inverse *= 2 - unsigned(number) * found.inverse;
    }
    return found;
  }
  __device__ __forceinline__ int quotient(int64_t multiple) const {
    return int(unsigned(multiple >> shift) * inverse);
  }
};

// Windows in the form in which kernels use them. Rows in front and behind are below 2^31.
struct WindowGrid {
  static constexpr int kDimensions = kPooledDimensions;
  int in[kDimensions], out[kDimensions], kernel[kDimensions], stride[kDimensions];
  int padding[kDimensions], dilation[kDimensions];
  Divisor by_in[kDimensions], by_out[kDimensions], by_stride[kDimensions], by_dilation[kDimensions];
  int counts_padding, divisor;
  bool apart;  // no position is seen by two windows
  bool flat;   // images have two dimensions, or one

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
    grid.flat = grid.in[0] == 1 && grid.out[0] == 1 && grid.kernel[0] == 1;
    grid.apart = true;
    for (int d = 0; d < kDimensions; ++d) {
      grid.apart &= grid.dilation[d] == 1 && grid.kernel[d] <= grid.stride[d];
    }
    return grid;
  }

  __host__ __device__ int64_t positions() const { return int64_t(in[0]) * in[1] * in[2]; }
  __host__ __device__ int64_t windows() const { return int64_t(out[0]) * out[1] * out[2]; }

  // The image of a row, and where in it the row is. sizes, by: those of the positions in front of
  // the windows, or of the windows.
  __device__ __forceinline__ int split(
      int row, const int (&sizes)[kDimensions], const Divisor (&by)[kDimensions],
      int (&at)[kDimensions]) const {
#pragma unroll
    for (int d = kDimensions - 1; d >= 0; --d) {
      if (d == 0 && flat) {
        at[0] = 0;
        break;
      }
      const int outer = by[d].quotient(row);
      at[d] = row - outer * sizes[d];
      row = outer;
    }
    return row;
  }

  // How many positions the mean of a window is over, which begins at these.
  __device__ __forceinline__ int count(const int (&begin)[kDimensions]) const {
    if (divisor != 0) return divisor;
    int count = 1;
#pragma unroll
    for (int d = 0; d < kDimensions; ++d) {
      const int end = min(begin[d] + kernel[d], in[d] + padding[d]);
      count *= counts_padding ? end - begin[d] : min(end, in[d]) - max(begin[d], 0);
    }
    return count;
  }
};

// The product of numbers below 2^31, whose bits are more.
__device__ __forceinline__ int64_t wide(int one, int other) { return int64_t(one) * other; }

// The taps of a window that are positions of the image, one after the other in the order of memory.
class TapsOfWindow {
 public:
  __device__ __forceinline__ TapsOfWindow(
      const WindowGrid& grid, int image, const int (&begins)[WindowGrid::kDimensions])
      : grid_(grid) {
    int row = image, tap = 0;
#pragma unroll
    for (int d = 0; d < WindowGrid::kDimensions; ++d) {
      const int begin = begins[d];
      const auto taps_up_to = [&](int position) {  // taps in front of a position
        return position > begin
            ? grid.by_dilation[d].quotient(position - begin + grid.dilation[d] - 1) : 0;
      };
      const int low = taps_up_to(0);
      length_[d] = max(min(grid.kernel[d], taps_up_to(grid.in[d])) - low, 0);
      left_[d] = length_[d];
      row = row * grid.in[d] + begin + low * grid.dilation[d];
      tap = tap * grid.kernel[d] + low;
    }
    row_ = row, tap_ = tap;
  }
  __device__ __forceinline__ int count() const { return length_[0] * length_[1] * length_[2]; }
  // The position, as a row of the images, and the tap's number in the kernel.
  __device__ __forceinline__ int row() const { return row_; }
  __device__ __forceinline__ int tap() const { return tap_; }

  __device__ __forceinline__ void next() {
    row_ += grid_.dilation[2], ++tap_;
    if (--left_[2] > 0) return;
    left_[2] = length_[2];
    row_ += grid_.dilation[1] * grid_.in[2] - length_[2] * grid_.dilation[2];
    tap_ += grid_.kernel[2] - length_[2];
    if (--left_[1] > 0) return;
    left_[1] = length_[1];
    row_ += (grid_.dilation[0] * grid_.in[1] - length_[1] * grid_.dilation[1]) * grid_.in[2];
    tap_ += (grid_.kernel[1] - length_[1]) * grid_.kernel[2];
  }

 private:
  const WindowGrid& grid_;
  int length_[WindowGrid::kDimensions], left_[WindowGrid::kDimensions];
  int row_, tap_;
};

// Where the windows that may see a position are, along each dimension.
struct WindowsOfPosition {
  static constexpr int kDimensions = WindowGrid::kDimensions;
  const WindowGrid& grid;
  int image, padded[kDimensions], first[kDimensions], last[kDimensions];

  __device__ __forceinline__ WindowsOfPosition(const WindowGrid& of, int row) : grid(of) {
    image = grid.split(row, grid.in, grid.by_in, padded);
#pragma unroll
    for (int d = 0; d < kDimensions; ++d) {
      first[d] = last[d] = 0;
      if (d == 0 && grid.flat) continue;
      padded[d] += grid.padding[d];
      last[d] = grid.by_stride[d].quotient(padded[d]);
      if (grid.apart) {
        first[d] = last[d];
      } else {
        const int beyond = padded[d] - grid.dilation[d] * (grid.kernel[d] - 1);
        first[d] = beyond > 0 ? grid.by_stride[d].quotient(beyond + grid.stride[d] - 1) : 0;
        last[d] = min(last[d], grid.out[d] - 1);
      }
    }
  }
  // The tap along a dimension by which a window sees the position; less than 0 where the position
  // lies between its taps.
  __device__ __forceinline__ int tap(int d, int window) const {
    const int reach = padded[d] - window * grid.stride[d];
    if (grid.dilation[d] == 1) return reach;
    const int own = grid.by_dilation[d].quotient(reach);
    return own * grid.dilation[d] == reach ? own : -1;
  }
  // Where no two windows see a position: the tap by which the first does, less than 0 without one.
  __device__ __forceinline__ int only_tap() const {
    int tap = 0;
    bool sees = true;
#pragma unroll
    for (int d = 0; d < kDimensions; ++d) {
      if (d == 0 && grid.flat) continue;
      const int own = padded[d] - first[d] * grid.stride[d];
      sees = sees && own < grid.kernel[d] && first[d] < grid.out[d];
      tap = tap * grid.kernel[d] + own;
    }
    return sees ? tap : -1;
  }
  // A window as a row of the results.
  __device__ __forceinline__ int row(int outer, int inner, int innermost) const {
    return ((image * grid.out[0] + outer) * grid.out[1] + inner) * grid.out[2] + innermost;
  }
  // How many positions the mean of a window is over.
  __device__ __forceinline__ int positions(int outer, int inner, int innermost) const {
    const int begin[kDimensions] = {
        outer * grid.stride[0] - grid.padding[0], inner * grid.stride[1] - grid.padding[1],
        innermost * grid.stride[2] - grid.padding[2]};
    return grid.count(begin);
  }
};

// sum / count, without a division where the inverse is exact.
template <typename Acc>
__device__ __forceinline__ Acc mean_of(Acc sum, int count) {
  return (count & (count - 1)) == 0 ? sum * (Acc(1) / Acc(count)) : sum / Acc(count);
}

}  // namespace fusegen
