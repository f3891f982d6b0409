// Why a schedule is chosen or not: the words of an explanation.
#pragma once

#include <cstdio>

#include "../explain.cuh"
#include "column_launch.cuh"
#include "l2_launch.cuh"
#include "program.cuh"
#include "row_launch.cuh"

namespace fusegen {

// What is said where a schedule is forced, this one or another; null where the sizes decide.
inline const char* reason_of_forced(const Shapes& shapes, bool chosen) {
  switch (shapes.schedule) {
    case kAutomatic:
      return nullptr;
    case kPersistentIfItFits:
    case kL2IfItFits:
      return chosen ? "measured to be fastest near this size" : nullptr;
    default:
      return chosen ? "forced" : "another schedule is forced, or this one does not fit";
  }
}

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

// in_registers: whether the row kernel runs; else `held` says how rows are in shared memory, if so.
template <int kFirst, int kVec, bool kPacked, class P>
void explain_row(
    const P& p, const Shapes& shapes, const RowLaunch& fit, bool in_registers,
    const RowShared& held) {
  const bool chosen = in_registers || held.threads > 0;
  if (const char* forced = reason_of_forced(shapes, chosen)) {
    return explanation->considered("row", chosen, forced);
  }
  const bool of_rows = P::kUnit[kFirst] == Unit::kRow;
  const char* what = of_rows ? "a row" : "a group";
  const long long length = of_rows ? p.channels : p.group_length;
  char reason[200];
  const char* verdict = "does not fit registers";
  if (in_registers) {
    verdict = fit.cluster > 1 ? "fits the registers of a cluster" : "fits registers";
  } else if (chosen) {
    verdict = held.cluster > 1 ? "fits the shared memory of a cluster" : "fits shared memory";
  } else if (row_fits_registers<kFirst, kVec, kPacked>(p, shapes)) {
    verdict = "fits registers, but to read it twice was measured to be faster";
  } else if (RowPasses<P, kFirst>::kHasShared) {
    verdict = "fits neither registers nor shared memory";
  }
  std::snprintf(reason, sizeof(reason), "%s of %lld elements %s", what, length, verdict);
  explanation->considered("row", chosen, reason);
  if (chosen) explanation->considered("two_pass", false, "reads elements once more");
}

inline void explain_tile() {
  explanation->considered(
      "tile", true, "outer tensors are [batch, channels, positions]: no other schedule reads them");
}

template <class P>
void explain_two_pass(const P& p) {
  if constexpr (P::kPasses == 1) {
    explanation->considered("pointwise", true, "nothing is reduced before the results");
  } else if constexpr (P::kUnit[P::kFirstResident] == Unit::kChannel) {
    explanation->considered(
        "two_pass", true, "any size",
        two_pass_microseconds(p.rows, p.channels, column_work<P, P::kFirstResident>()));
  } else {
    explanation->considered("two_pass", true, "any size");
  }
}

}  // namespace fusegen
