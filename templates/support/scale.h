// A gradient times a number on the device: the arguments, for kernels/scale.cuh and torch_scale.h.
#pragma once

#include "dtypes.h"

#include <cstdint>

namespace fusegen {

struct Scale {
  void* values;         // [count], which the products take the place of
  int64_t count;
  const float* factor;  // [1]
  Dtype dtype;          // of the values: float32 or bfloat16
  bool keeps_zeros;     // also where the factor is no number: as of rows that are ignored
};

}  // namespace fusegen
