// Nothing asks here why a schedule is chosen.
#pragma once

#include "../shapes.cuh"
#include "column_launch.cuh"

namespace fusegen {

template <int kFirst, int kVec, bool kPacked, class P>
void explain_column(const P&, const Shapes&, const Column&) {}

}  // namespace fusegen
