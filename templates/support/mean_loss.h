// The mean of the losses of rows: its arguments, for kernels/mean_loss.cuh and for
// torch_mean_loss.h.
#pragma once

#include <cstdint>

namespace fusegen {

struct MeanLoss {
  const void* losses;      // [rows], of the type of results in the call's mode
  const int64_t* targets;  // [rows]
  const void* weights;     // [channels], of accumulators; null where all are 1
  int64_t rows, channels;
  int64_t ignored;         // the target of rows that do not count
  void* mean;              // [1], of the type of losses; NaN where no row counts
  void* count;             // [1], of accumulators: how many rows count, or their targets' weights
};

}  // namespace fusegen
