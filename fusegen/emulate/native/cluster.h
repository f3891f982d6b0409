// What the blocks of a cluster do together: barriers in two halves, and access to each other's shared memory.
// Included once, by engine.cpp.
#pragma once

#include <algorithm>

#include "schedule.h"

namespace fusegen::emulate {
namespace {

// Lets those go on that wait for the cluster's barrier, if all have come. A thread that has exited counts.
void try_finish_phase() {
  if (engine.arrived == 0 || engine.arrived < engine.live) return;
  ++engine.phase;
  engine.arrived = 0;
  engine.clock.met = ++engine.clock.now;
  for (unsigned rank = 0; rank < engine.cluster; ++rank) {
    Block& block = engine.blocks[rank];
    for (unsigned i = 0; i < engine.thread_count; ++i) {
      Thread& thread = block.threads[i];
      thread.visitor.who &= static_cast<Who>(~has_arrived);
      if (!thread.waits_for_cluster) continue;
      thread.waits_for_cluster = false;
      set_runnable(block, i / warp_size, 1u << i % warp_size, true);
    }
    block.warp = no_warp;
  }
}

// A block's last thread has come to its end.
void leave_cluster(const Block& block) {
  if (block.visited < block.waited) return;
  fail(engine.current, "exits with no cluster barrier behind which no other block accesses this one's shared memory");
}

}  // namespace

void cluster_arrive(Site site) {
  Thread& self = *engine.current;
  if (self.arrivals != self.waits) {
    fail(&self, "arrives at the cluster's barrier at %s:%d and has not waited since it last did", AT(site));
  }
  self.site = site;
  self.visitor.who |= has_arrived;
  ++self.arrivals;
  ++engine.arrived;
  try_finish_phase();
}

void cluster_wait(Site site) {
  Thread& self = *engine.current;
  if (self.arrivals == self.waits) {
    fail(&self, "waits for the cluster's barrier at %s:%d and has not arrived", AT(site));
  }
  self.site = site;
  if (engine.phase < self.arrivals) {
    self.waits_for_cluster = true;
    set_runnable(*engine.block, self.number / warp_size, 1u << self.number % warp_size, false);
  } else {
    choose_block(random_bits() & 0xffff);  // whoever came last must not always go on first
  }
  run_another();
  ++self.waits;
  self.visitor.wait_before = self.visitor.last_wait;
  self.visitor.last_wait = engine.clock.met;
  engine.block->waited = std::max(engine.block->waited, int(self.waits));
}

void* peer_address(void* address, unsigned rank) {
  const SharedMemory& own = engine.block->shared;
  const std::ptrdiff_t at = static_cast<unsigned char*>(address) - own.data();
  if (rank >= engine.cluster) {
    fail(engine.current, "asks for block %u of a cluster of %u", rank, engine.cluster);
  }
  if (at < 0 || at > static_cast<std::ptrdiff_t>(own.bytes())) {
    fail(engine.current, "asks another block for byte %td of %zu bytes of shared memory", at, own.bytes());
  }
  return engine.blocks[rank].shared.data() + at;
}

}  // namespace fusegen::emulate
