// What the ops over ranks need besides: results of several values a channel, as one tensor that
// ranks gather.
#pragma once

#include "ranks.h"
#include "torch_arguments.h"

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// The statistics of this rank: means and variances, yet to be written, and the number of rows.
inline Tensor empty_statistics(
    const Tensor& like, ScalarType dtype, int64_t channels, int64_t rows) {
  return torch::stable::fill_(empty(like, dtype, {2 * channels + 1}), double(rows));
}
// Two sums a channel, yet to be written.
inline Tensor empty_sums(const Tensor& like, ScalarType dtype, int64_t channels, int64_t /*rows*/) {
  return empty(like, dtype, {2 * channels});
}

}}  // namespace fusegen::glue
