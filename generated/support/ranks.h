// What merges the statistics that several ranks have gathered: its arguments, for ranks.cuh and for
// bindings.cpp.
#pragma once

#include <cstdint>

namespace fusegen {

struct RankMerge {
  const void* gathered;     // [ranks, 2 * channels + 1]: means, variances, the number of rows
  int64_t ranks;
  void* mean;               // [channels], of the rows of all ranks
  void* variance;           // [channels], biased
  void* count;              // [1], the rows of all ranks
  void* running_mean;       // [channels]; null: nothing is moved
  void* running_var;        // [channels]
  int64_t* batches;         // [1], counted here unless the momentum is negative; may be null
  double momentum;          // negative: the average of all batches, by their number
};

}  // namespace fusegen
