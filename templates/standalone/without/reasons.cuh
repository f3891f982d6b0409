// Nothing asks here why a schedule is chosen: `fusegen plan` does, of a spec.
#pragma once

#include "../explain.cuh"
#include "column_launch.cuh"
#include "l2_launch.cuh"
#include "program.cuh"
#include "row_launch.cuh"

namespace fusegen {

template <int kFirst, int kVec, bool kPacked, class P>
void explain_column(const P&, const Shapes&, const Column&) {}
template <int kVec, bool kPacked, class P>
void explain_l2(const P&, const Shapes&, const L2Shape&) {}
template <int kFirst, int kVec, bool kPacked, class P>
void explain_row(const P&, const Shapes&, const RowLaunch&, bool, const RowShared&) {}
inline void explain_tile() {}
template <class P>
void explain_two_pass(const P&) {}

}  // namespace fusegen
