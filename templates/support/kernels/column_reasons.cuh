// Why a column schedule is chosen or not.
#pragma once

#include "../column_shapes.cuh"
#include "reasons.cuh"

namespace fusegen {

inline const char* reason_of_column(const Column& tile, bool chosen) {
  if (!tile.fits) return "no tile of columns fits shared memory";
  return chosen ? "tiles of columns fit shared memory" : kEstimatedSlower;
}

}  // namespace fusegen
