// Launch shapes of kernels whose panels of columns stay in the L2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <cuda_runtime.h>

#include "column_work.cuh"
#include "shapes.cuh"

namespace fusegen {

// A row of a panel fills a line of the L2. A block has a slice of a panel's rows.
constexpr int kPanelBytes = 128;
constexpr int kPanelRows = 256;
constexpr int kPanelThreads = 256;
constexpr int kPanelWarps = kPanelThreads / 32;

// A launch in which blocks take turns at panels, as panel_turn() in panels.cuh says.
struct Panel {
  dim3 grid;
  dim3 block;
  int panels;
  int slices;
  int lag;  // by how many panels results are behind sums
  bool fits;
};

// How long such a kernel takes, like split_microseconds(). What is read again costs little, a panel
// something. Fitted with column_microseconds() as it is: in 1024 cases on an H100 and an H200, with
// rows that fill lines, the schedule that is least by these estimates takes 1.01 times as long as
// the fastest, in the geometric mean; 1.04 times without panels.
inline double panel_microseconds(int64_t rows, int64_t channels, const ColumnWork& work) {
  const double bytes = double(rows * channels * work.narrowest);
  const double panels = double(channels * work.narrowest) / kPanelBytes;
  return 17.0 + bytes * (work.moved + 0.2 * work.again) * 350e-9 + 0.06 * panels;
}

// What panels keep of the L2, for each of them.
inline int64_t panel_kept_bytes(int64_t rows, const ColumnWork& work) {
  return rows * (kPanelBytes / work.narrowest) * work.kept;
}

// Whether panels stay in the L2. Rows have to fill lines, or panels share some. And the L2 has to
// have room for what is read before it is read again: two panels in a third of it, or everything in
// a half.
inline bool panels_fit(
    int64_t rows, int64_t channels, bool packed, const ColumnWork& work, int64_t l2_bytes) {
  if (work.kept == 0 || !packed || channels * work.narrowest % kPanelBytes != 0) return false;
  const int64_t panel = panel_kept_bytes(rows, work), whole = rows * channels * work.kept;
  return 6 * panel <= l2_bytes || 2 * whole <= l2_bytes;
}

// Whether they do, and are asked for or faster than the split schedule.
inline bool panels_suit(
    const Shapes& shapes, int64_t rows, int64_t channels, bool packed, const ColumnWork& work,
    int64_t l2_bytes) {
  return panels_fit(rows, channels, packed, work, l2_bytes) &&
      (shapes.schedule == kPanelsIfTheyFit ||
       panel_microseconds(rows, channels, work) < split_microseconds(rows, channels, work));
}

// With `vector` elements of a row in each thread. Not if another schedule is asked for, or if the
// sizes decide and the split schedule is faster.
inline Panel panel_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed,
    const ColumnWork& work, int64_t l2_bytes) {
  const int width = kPanelBytes / int(vector * work.narrowest);
  const int64_t panels = ceil_div(channels, int64_t(width) * vector);
  const int64_t slices = ceil_div(rows, kPanelRows);
  // What is read before it is read again takes a third of the L2, as measured: as much again passes
  // through it, or half as much.
  const int64_t bytes = std::max<int64_t>(panel_kept_bytes(rows, work), 1);
  const int64_t usual = std::max<int64_t>(1, (l2_bytes / 3 + bytes / 2) / bytes);
  const int64_t lag = std::min(shapes.panel_lag != 0 ? shapes.panel_lag : usual, panels);
  const int64_t blocks = (panels + lag) * (2 * slices + vector);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const bool decide = shapes.schedule != kOnChip && shapes.schedule != kSplit;
  const bool chosen = shapes.schedule == kPanels
      ? packed
      : decide && panels_suit(shapes, rows, channels, packed, work, l2_bytes);
  return {dim3(unsigned(blocks)), dim3(width, kPanelThreads / width), int(panels), int(slices),
          int(lag), chosen && rows <= kMost - 2 * kPanelRows && blocks <= kMost};
}

}  // namespace fusegen
