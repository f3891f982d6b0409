// Nothing asks here why a schedule is chosen.
#pragma once

#include "../shapes.cuh"
#include "row_launch.cuh"

namespace fusegen {

template <int kFirst, int kVec, bool kPacked, class P>
void explain_row(const P&, const Shapes&, const RowLaunch&, bool, const RowShared&) {}

}  // namespace fusegen
