// The kinds of schedules that a program has, and which of them a call takes.
//
// A kind is a class template S<P, kVec, kPacked>, made for one call, of
//
//   kName             what explanations call it
//   kForced, kPreferred   the values of Shapes::schedule that force it, and that prefer it
//   S(passes)         finds its launch shapes for the call
//   eligible()        whether it can run at all
//   pays()            whether it can be preferred, and chosen by its cost
//   cost()            about microseconds beyond what any kernel takes: only the order matters
//   reason(chosen, text)   why it is chosen or not; `text` has kReasonLength bytes to write it to
//   launch()          launches its kernels
#pragma once

#include <cstdint>
#include <limits>

#include "../shapes.cuh"

namespace fusegen {

// The kinds of one program, in the order in which they are explained. The last fits every size.
template <template <class, int, bool> class... Schedules>
struct ScheduleList {};

// Costs of schedules that no other is compared with: one that is taken where it pays, and one that
// is taken where nothing else is.
constexpr double kAlwaysFaster = -1;
constexpr double kAlwaysSlower = std::numeric_limits<double>::infinity();

// What the choice of a schedule follows from.
struct Candidate {
  int64_t forced, preferred;
  bool eligible, pays;
  double cost;
};

enum class ChosenBy { kCost, kPreference, kForce };

// The place of a schedule in its list; -1 where the one that is forced is not eligible.
struct ChosenSchedule {
  int place;
  ChosenBy by;
};

// One that is forced or preferred; else the cheapest, of equal ones the last. What a program lacks
// cannot be forced.
template <int kCount>
ChosenSchedule choose_schedule(int64_t schedule, const Candidate (&candidates)[kCount]) {
  ChosenSchedule chosen{-1, ChosenBy::kCost};
  for (int i = 0; i < kCount; ++i) {
    const Candidate& each = candidates[i];
    if (schedule == each.forced) return {each.eligible ? i : -1, ChosenBy::kForce};
    if (!each.eligible || !each.pays) continue;
    if (schedule == each.preferred) return {i, ChosenBy::kPreference};
    if (chosen.place < 0 || each.cost <= candidates[chosen.place].cost) chosen.place = i;
  }
  return chosen;
}

}  // namespace fusegen
