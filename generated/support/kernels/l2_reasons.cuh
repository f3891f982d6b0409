// Why an L2-resident schedule is chosen or not.
#pragma once

#include "reasons.cuh"

namespace fusegen {

inline const char* reason_of_l2(bool stays, bool chosen) {
  if (!stays) {
    return "rows do not fill cache lines, or the L2 does not hold columns until they are read "
           "again";
  }
  return chosen ? "columns stay in the L2 until they are read again" : kEstimatedSlower;
}

}  // namespace fusegen
