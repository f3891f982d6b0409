// Runs a program: chooses one of its schedules, and launches its kernels.
//
//   row        rows, or groups of channels, stay in registers from their sums to their results
//   column     tiles of columns stay in shared memory
//   l2         groups of columns stay in the L2
//   two-pass   any size: a pass over memory for each reduction, then one for the results
//   pointwise  the same where nothing is reduced before the results
//   plane_shared   where outer tensors are [batch, channels, positions]: what a group of a sample's
//              channels reads stays in shared memory
//   tile       two-pass or pointwise there: with tile and plane kernels
//
// P::Schedules has those of a program, each in the header of its name. Passes before
// P::kFirstResident reduce something else than the last ones; all schedules take them from memory.
#pragma once

#include <tuple>
#include <type_traits>

#include <cuda_runtime.h>

#include "../explain.cuh"
#include "memory_passes.cuh"
#include "program.cuh"
#include "reasons.cuh"
#include "schedule_list.cuh"
#include "two_pass_schedule.cuh"

namespace fusegen {

template <class P, int kVec, bool kPacked>
class PlaneSharedSchedule;  // plane_shared_schedule.cuh

// Runs one of the schedules, on its passes of a call.
template <class P, int kVec, bool kPacked, template <class, int, bool> class... Schedules>
cudaError_t run_schedule(
    MemoryPasses<P, kVec, kPacked>& passes, ScheduleList<Schedules...>) {
  std::tuple<Schedules<P, kVec, kPacked>...> all{Schedules<P, kVec, kPacked>(passes)...};
  return std::apply(
      [&](auto&... schedule) {
        const Candidate candidates[] = {
            {schedule.kForced, schedule.kPreferred, schedule.eligible(), schedule.pays(),
             schedule.cost()}...};
        const ChosenSchedule chosen =
            choose_schedule(passes.context().shapes.schedule, candidates);
        int place = 0;
        if (explanation != nullptr) (explain_schedule(schedule, chosen, place++), ...);
        cudaError_t error = cudaErrorInvalidConfiguration;
        place = 0;
        ((place++ == chosen.place ? void(error = schedule.launch()) : void()), ...);
        return error;
      },
      all);
}

// Runs a program in one call, with vectors of kVec elements; packed: all rows and groups begin with
// one.
template <int kVec, bool kPacked, class P>
cudaError_t run_with_vectors(P p, const LaunchContext& context, Scratch& scratch) {
  MemoryPasses<P, kVec, kPacked> passes(p, context, scratch);
  if constexpr (P::kOuterReads != 0 || P::kOuterWrites != 0) {
    using Found = std::conditional_t<
        planes_stay<P>(), ScheduleList<PlaneSharedSchedule, TileSchedule>,
        ScheduleList<TileSchedule>>;
    if (p.positions > 0) return run_schedule(passes, Found());
  }
  return run_schedule(passes, typename P::Schedules());
}

}  // namespace fusegen
