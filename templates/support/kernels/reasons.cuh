// Why a schedule is chosen or not, as text for an explanation. Each kind has its own reasons in the
// header of its name.
#pragma once

#include "../explain.cuh"
#include "program.cuh"
#include "schedule_list.cuh"
#include "two_pass_schedule.cuh"

namespace fusegen {

constexpr int kReasonLength = 200;
constexpr const char* kEstimatedSlower = "estimated slower";

// Where the costs do not decide; null where they do.
inline const char* reason_of_choice(ChosenBy by, bool chosen) {
  switch (by) {
    case ChosenBy::kForce:
      return chosen ? "forced" : "another schedule is forced, or this one does not fit";
    case ChosenBy::kPreference:
      return chosen ? "measured to be fastest near this size"
                    : "another schedule was measured to be faster near this size";
    case ChosenBy::kCost:
      return nullptr;
  }
  return nullptr;
}

// place: of the schedule in its list.
template <class Schedule>
void explain_schedule(const Schedule& schedule, const ChosenSchedule& chosen, int place) {
  char text[kReasonLength];
  const bool is_chosen = place == chosen.place;
  const char* reason = reason_of_choice(chosen.by, is_chosen);
  if (reason == nullptr) reason = schedule.reason(is_chosen, text);
  const bool compared =
      chosen.by == ChosenBy::kCost && schedule.eligible() && schedule.cost() < kAlwaysSlower;
  explanation->considered(Schedule::kName, is_chosen, reason, compared ? schedule.cost() : -1);
}

template <class P, int kVec, bool kPacked>
const char* TwoPassSchedule<P, kVec, kPacked>::reason(bool chosen, char*) const {
  if (chosen) return "any size";
  return kOfColumns ? kEstimatedSlower : "reads elements once more";
}

template <class P, int kVec, bool kPacked>
const char* PointwiseSchedule<P, kVec, kPacked>::reason(bool, char*) const {
  return "nothing is reduced before the results";
}

template <class P, int kVec, bool kPacked>
const char* TileSchedule<P, kVec, kPacked>::reason(bool, char*) const {
  return "outer tensors are [batch, channels, positions]: no other schedule reads them";
}

}  // namespace fusegen
