// The work of kernels whose columns stay on chip, and the time of the two-pass schedule instead.
#pragma once

#include <cstdint>

namespace fusegen {

// The work of a program whose columns can stay on chip, by which its schedule and its tiles are
// chosen.
struct ColumnWork {
  int64_t element;    // bytes of a tile for each of its elements
  int64_t narrowest;  // bytes of an element of the narrowest tensor in it
  int64_t sums;       // bytes of what a warp sums of a column
  int64_t exchange;   // bytes that a block of a cluster exchanges of a column
  int moved;          // tensors with all elements that it reads or writes
  int again;          // tensors with all elements that the two-pass schedule reads a second time
  int64_t resident = 0;  // bytes of an element that an L2-resident kernel has in the L2
};

// How long the two-pass schedule takes beyond what any kernel does, in about microseconds, as the
// estimates of other schedules: only their order matters.
inline double two_pass_microseconds(int64_t rows, int64_t channels, const ColumnWork& work) {
  const int64_t element = (work.moved + work.again) * work.narrowest;
  return 14.5 + double(rows * channels * element) * 350e-9;
}

}  // namespace fusegen
