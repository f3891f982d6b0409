// What the ops over ranks need besides: results of several values a channel, as one tensor that
// ranks gather.
#pragma once

#include "ranks.h"
#include "torch_arguments.h"

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// Where values number `index * channels` and the following ones are, of float or double.
inline void* write_part(const Tensor& tensor, int64_t index, int64_t channels) {
  const int64_t bytes = tensor.scalar_type() == ScalarType::Double ? 8 : 4;
  return static_cast<char*>(write(tensor)) + index * channels * bytes;
}

// The statistics of this rank: means and variances, yet to be written, and the number of rows.
inline Tensor empty_statistics(
    const Tensor& like, ScalarType dtype, int64_t channels, int64_t rows) {
  return torch::stable::fill_(empty(like, dtype, {2 * channels + 1}), double(rows));
}

}}  // namespace fusegen::glue
