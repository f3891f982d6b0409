// Launch shapes out of a table of those that were measured to be fastest, by the GPU at hand, the
// dtypes and the sizes.
#pragma once

#include <cstdint>
#include <limits>

#include <cuda_runtime.h>

#include "call.h"
#include "shapes.cuh"

namespace fusegen {

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

// A line of a table. Lines of one capability and mode are in the order of their rows.
struct Tuned {
  int capability;     // ten times the major compute capability, plus the minor
  unsigned modes;     // the dtype modes, as bits
  int64_t most_rows;  // up to which the line holds
  int64_t channels;   // as measured; it holds from half of them to twice as many
  int64_t length;     // those of a group, all of them where there are no groups: likewise, and for
                      // groups without vectors only if that one has none
  Shapes shapes;
};

template <typename... Modes>
constexpr unsigned modes(Modes... mode) {
  return ((1u << mode) | ...);
}

inline bool is_near(int64_t size, int64_t measured) {
  return size <= 2 * measured && measured <= 2 * size;
}

// Whether groups of so many elements begin at multiples of 16 bytes, whatever the dtype: those that
// do not have other kernels, in 16 bits at least.
inline bool has_vectors(int64_t length) { return length % 8 == 0; }

// The shapes of the first line that holds, else the default.
template <int kLines>
Shapes tuned_shapes(
    const Tuned (&table)[kLines], int capability, int mode, int64_t rows, int64_t channels,
    int64_t length) {
  for (const Tuned& line : table) {
    const bool same = line.capability == capability && (line.modes >> mode & 1u) != 0;
    const bool near = is_near(channels, line.channels) && is_near(length, line.length);
    const bool alike = has_vectors(length) == has_vectors(line.length);
    if (same && near && alike && rows <= line.most_rows) return line.shapes;
  }
  return {};
}

// Those that a call forces, else the above.
template <int kLines>
Shapes shapes_of(const Call& call, const Tuned (&table)[kLines], const Target& target) {
  if (call.forced != nullptr) return *call.forced;
  return tuned_shapes(
      table, target.capability, int(call.mode), call.rows, call.channels,
      call.channels / call.groups);
}

}  // namespace fusegen
