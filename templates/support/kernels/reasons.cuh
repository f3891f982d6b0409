// Why a schedule is chosen or not: the words of an explanation. Those of row, column and
// L2-resident schedules are beside these.
#pragma once

#include "../column_work.cuh"
#include "../explain.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "program.cuh"

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
