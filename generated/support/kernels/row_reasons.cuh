// Why a row schedule is chosen or not.
#pragma once

#include <cstdio>

#include "program.cuh"
#include "reasons.cuh"
#include "row_launch.cuh"
#include "row_shared_launch.cuh"

namespace fusegen {

// How segments are held: in registers, else in shared memory, else not at all.
template <class P, int kFirst>
const char* reason_of_row(
    const P& p, const RowLaunch& registers, const RowShared& shared, char* text) {
  const bool of_rows = P::kUnit[kFirst] == Unit::kRow;
  const char* what = of_rows ? "a row" : "a group";
  const long long length = of_rows ? p.channels : p.group_length;
  const char* verdict = "does not fit registers";
  if (registers.second_read_pays) {
    verdict = "fits registers, but to read it twice was measured to be faster";
  } else if (registers.items > 0) {
    verdict = registers.cluster > 1 ? "fits the registers of a cluster" : "fits registers";
  } else if (shared.threads > 0) {
    verdict = shared.cluster > 1 ? "fits the shared memory of a cluster" : "fits shared memory";
  } else if (RowPasses<P, kFirst>::kHasShared) {
    verdict = "fits neither registers nor shared memory";
  }
  std::snprintf(text, kReasonLength, "%s of %lld elements %s", what, length, verdict);
  return text;
}

}  // namespace fusegen
