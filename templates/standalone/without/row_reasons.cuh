// Nothing asks here why a schedule is chosen.
#pragma once

#include "row_launch.cuh"
#include "row_shared_launch.cuh"

namespace fusegen {

template <class P, int kFirst>
const char* reason_of_row(const P&, const RowLaunch&, const RowShared&, char*) {
  return nullptr;
}

}  // namespace fusegen
