// Why a column schedule is chosen or not.
#pragma once

#include "../column_shapes.cuh"
#include "../explain.cuh"
#include "../l2_shapes.cuh"
#include "../shapes.cuh"
#include "column_launch.cuh"
#include "column_layout.cuh"
#include "program.cuh"
#include "reasons.cuh"

namespace fusegen {

// What a schedule that is not looked at any more would take.
template <class P>
void explain_slower(const P& p, const ColumnWork& work, bool packed) {
  const char* slower = "estimated slower";
  if (l2_fits(p.rows, p.channels, packed, work, P::kTarget.l2_bytes)) {
    const double time = l2_microseconds(p.rows, p.channels, work);
    explanation->considered("l2", false, slower, time);
  }
  explanation->considered(
      "two_pass", false, slower, two_pass_microseconds(p.rows, p.channels, work));
}

template <int kFirst, int kVec, bool kPacked, class P>
void explain_column(const P& p, const Shapes& shapes, const Column& tile) {
  constexpr ColumnWork kWork = column_work<P, kFirst>();
  const auto microseconds = [&](const Column& each) {
    return column_microseconds(
        each, kWork, p.channels, kColumnsOfThread<kVec, kPacked>, kPacked, P::kTarget.shared_bytes,
        P::kTarget.multiprocessors);
  };
  if (const char* forced = reason_of_forced(shapes, tile.fits)) {
    return explanation->considered("column", tile.fits, forced);
  }
  if (tile.fits) {
    explanation->considered(
        "column", true, "tiles of columns fit shared memory", microseconds(tile));
    return explain_slower(p, kWork, kPacked);
  }
  const Column slower =
      column_tile<kFirst, kVec, kPacked>(p, shapes.with(&Shapes::schedule, kPersistent));
  if (!slower.fits) {
    return explanation->considered("column", false, "no tile of columns fits shared memory");
  }
  explanation->considered(
      "column", false, "another schedule is estimated faster", microseconds(slower));
}

}  // namespace fusegen
