// Why a row schedule is chosen or not.
#pragma once

#include <cstdio>

#include "../explain.cuh"
#include "../shapes.cuh"
#include "program.cuh"
#include "reasons.cuh"
#include "row_launch.cuh"

namespace fusegen {

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

}  // namespace fusegen
