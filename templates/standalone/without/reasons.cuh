// Nothing asks here why a schedule is chosen: `fusegen plan` does, of a spec.
#pragma once

namespace fusegen {

inline void explain_tile() {}
template <class P>
void explain_two_pass(const P&) {}

}  // namespace fusegen
