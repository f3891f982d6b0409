// Why an L2-resident schedule is chosen or not.
#pragma once

#include "../explain.cuh"
#include "../l2_shapes.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "program.cuh"
#include "reasons.cuh"

namespace fusegen {

template <int kVec, bool kPacked, class P>
void explain_l2(const P& p, const Shapes& shapes, const L2Shape& shape) {
  constexpr ColumnWork kWork = column_work<P, 0>();
  if (const char* forced = reason_of_forced(shapes, shape.fits)) {
    return explanation->considered("l2", shape.fits, forced);
  }
  if (!l2_fits(p.rows, p.channels, kPacked, kWork, P::kTarget.l2_bytes)) {
    return explanation->considered(
        "l2", false,
        "rows do not fill cache lines, or the L2 does not hold columns until they are read again");
  }
  explanation->considered(
      "l2", shape.fits,
      shape.fits ? "columns stay in the L2 until they are read again"
                 : "another schedule is estimated faster",
      l2_microseconds(p.rows, p.channels, kWork));
}

}  // namespace fusegen
