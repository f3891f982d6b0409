// Which thread runs, and what the threads of a block wait for: barriers and shuffles.
// Included once, by engine.cpp.
//
// A thread runs until it waits; then another one is chosen at random. The choice keeps to one warp while it
// can, and each block leaves a warp early with another probability: never, so that one warp gets as far ahead
// of the others as barriers allow; seldom; or often, so that all advance together. A missing barrier shows
// under one of them, whichever way round it is needed. The blocks of a cluster take turns in the same way.
#pragma once

#include "state.h"

namespace fusegen::emulate {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64: neighbouring seeds give unrelated results
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t random_bits() { return mix(engine.random_state++); }

// One of the set bits, each as likely as the others; random has 16 bits.
unsigned choose_bit(unsigned mask, unsigned random) {
  const auto bits = static_cast<unsigned>(__builtin_popcount(mask));
  for (unsigned skip = random * bits >> 16; skip; --skip) mask &= mask - 1;
  return static_cast<unsigned>(__builtin_ctz(mask));
}

// A thread that waits at a shuffle for a lane that is somewhere else.
void report_shuffle(const Block& block) {
  for (unsigned i = 0; i < engine.thread_count; ++i) {
    const Thread& thread = block.threads[i];
    const Warp& warp = block.warps[i / warp_size];
    if (!(warp.exchanging >> i % warp_size & 1)) continue;
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      if (!(thread.mask & warp.live & 1u << lane)) continue;
      const Thread& other = block.threads[i / warp_size * warp_size + lane];
      const bool exchanges = warp.exchanging >> lane & 1;
      if (exchanges && other.mask == thread.mask) continue;
      const char* barrier = other.waits_for_cluster ? "the cluster's barrier" : "the block's barrier";
      fail(&thread, "waits at %s:%d with mask 0x%08x for lane %u, which waits at %s:%d for %s",
           AT(thread.site), thread.mask, lane, AT(other.site), exchanges ? "a shuffle with another mask" : barrier);
    }
  }
}

// A thread that waits at the block's barrier for one that waits at the cluster's.
void report_barriers(const Block& block) {
  const Thread* of_block = nullptr;
  const Thread* of_cluster = nullptr;
  for (unsigned i = 0; i < engine.thread_count; ++i) {
    if (!(block.warps[i / warp_size].live >> i % warp_size & 1)) continue;
    (block.threads[i].waits_for_cluster ? of_cluster : of_block) = &block.threads[i];
  }
  if (!of_block || !of_cluster) return;
  const uint3 index = of_cluster->index;
  fail(of_block, "waits at %s:%d for the block's barrier while thread (%u, %u, %u) waits at %s:%d for the cluster's",
       AT(of_block->site), index.x, index.y, index.z, AT(of_cluster->site));
}

// Nobody can run, though threads are alive. All of them at one barrier would have been let go on.
[[noreturn]] void report_deadlock() {
  for (void (*report)(const Block&) : {report_shuffle, report_barriers}) {
    for (unsigned rank = 0; rank < engine.cluster; ++rank) {
      enter_block(engine.blocks[rank]);
      report(*engine.block);
    }
  }
  fail(engine.current, "deadlock");
}

void switch_to(Thread& thread) {
  Thread* from = engine.current;
  if (from == &thread) return;
  engine.current = &thread;
  threadIdx = thread.index;
  switch_fibre(from ? from->fibre : engine.outside, thread.fibre);
}

// Goes on in any block that can.
void choose_block(unsigned random) {
  unsigned blocks = 0;
  for (unsigned rank = 0; rank < engine.cluster; ++rank) {
    if (engine.blocks[rank].runnable_warps) blocks |= 1u << rank;
  }
  if (!blocks) report_deadlock();
  enter_block(engine.blocks[choose_bit(blocks, random)]);
}

// Lets another thread run, or the same one if that is what chance says.
void run_another() {
  const std::uint64_t random = random_bits();
  const bool leaves = random % 1024 < engine.leave_probability;
  if (!engine.block->runnable_warps || (leaves && engine.cluster > 1)) choose_block(random >> 48);
  Block& block = *engine.block;
  const bool stays = block.warp != no_warp && block.runnable_warps >> block.warp & 1;
  if (!stays || leaves) block.warp = choose_bit(block.runnable_warps, random >> 16 & 0xffff);
  const unsigned lane = choose_bit(block.warps[block.warp].runnable, random >> 32 & 0xffff);
  switch_to(block.threads[block.warp * warp_size + lane]);
}

void set_runnable(Block& block, unsigned warp, unsigned lanes, bool runnable) {
  unsigned& mask = block.warps[warp].runnable;
  mask = runnable ? mask | lanes : mask & ~lanes;
  const unsigned bit = 1u << warp;
  block.runnable_warps = mask ? block.runnable_warps | bit : block.runnable_warps & ~bit;
}

void finish_barrier(Block& block) {
  for (unsigned w = 0; w * warp_size < engine.thread_count; ++w) set_runnable(block, w, block.warps[w].live, true);
  block.at_barrier = 0;
  block.clock.pass_barrier(++engine.clock.now);
  for (unsigned i = 0; block.acquires && i < engine.thread_count; ++i) {
    auto& acquired = block.threads[i].acquired;
    block.acquired.insert(block.acquired.end(), acquired.begin(), acquired.end());
    acquired.clear();
  }
  block.acquires = false;
  block.warp = no_warp;  // whoever came last must not always go on first
}

// Lets the lanes go on that wait together with this one, if all have come.
void try_finish_exchange(Thread& thread) {
  Block& block = *engine.block;
  const unsigned w = thread.number / warp_size;
  Warp& warp = block.warps[w];
  Thread* lanes = block.threads + w * warp_size;
  const unsigned mask = thread.kind == Exchange::barrier ? thread.mask & warp.live : thread.mask;
  if (mask & ~warp.exchanging) return;
  std::uint64_t values[warp_size];
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
    // A lane at another rendezvous may still come to this one.
    if (lanes[lane].mask != thread.mask) return;
    const bool is_shuffle = thread.kind != Exchange::barrier;
    if (lanes[lane].kind != thread.kind || (is_shuffle && !(lanes[lane].site == thread.site))) {
      fail(&thread, "is at %s:%d while lane %u is in another shuffle at %s:%d", AT(thread.site), lane,
           AT(lanes[lane].site));
    }
    values[lane] = lanes[lane].value;
  }
  if (thread.kind == Exchange::barrier) {
    block.clock.warp_barrier[w] = ++engine.clock.now;
  } else {
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      Thread& reader = lanes[__builtin_ctz(rest)];
      if (!(mask >> reader.source & 1)) {
        fail(&reader, "reads lane %u at %s:%d, which mask 0x%08x does not name", reader.source,
             AT(reader.site), reader.mask);
      }
      reader.value = values[reader.source];
    }
  }
  warp.exchanging &= ~mask;
  set_runnable(block, w, mask, true);
}

}  // namespace

void block_barrier(Site site) {
  Block& block = *engine.block;
  Thread& self = *engine.current;
  self.site = site;
  if (block.at_barrier++ == 0) block.first_at_barrier = &self;
  const Site& first = block.first_at_barrier->site;
  if (!(site == first)) {
    const uint3 other = block.first_at_barrier->index;
    fail(&self, "is at the barrier %s:%d while thread (%u, %u, %u) waits at the barrier %s:%d", AT(site),
         other.x, other.y, other.z, AT(first));
  }
  set_runnable(block, self.number / warp_size, 1u << self.number % warp_size, false);
  if (block.at_barrier == block.live) finish_barrier(block);
  run_another();
}

std::uint64_t exchange(Exchange kind, unsigned mask, std::uint64_t value, int operand, int width, Site site) {
  Thread& self = *engine.current;
  const unsigned w = self.number / warp_size;
  const int lane = static_cast<int>(self.number % warp_size);
  Warp& warp = engine.block->warps[w];
  self.site = site;
  if (!(mask >> lane & 1)) {
    fail(&self, "uses mask 0x%08x at %s:%d, which does not name its own lane", mask, AT(site));
  }
  if (kind != Exchange::barrier && mask & ~warp.live) {
    fail(&self, "uses mask 0x%08x at %s:%d, which names lane %d, but no such lane is alive", mask,
         AT(site), __builtin_ctz(mask & ~warp.live));
  }
  if (width < 1 || width > 32 || (width & (width - 1))) {
    fail(&self, "shuffles with width %d at %s:%d", width, AT(site));
  }
  // Lanes beyond the segment cannot be read: such a lane gets its own value back.
  const int first = lane & ~(width - 1);
  const int last = first + width - 1;
  int source = lane;
  switch (kind) {
    case Exchange::index: source = first | (operand & (width - 1)); break;
    case Exchange::up: source = operand > lane - first ? lane : lane - operand; break;
    case Exchange::down: source = operand > last - lane ? lane : lane + operand; break;
    case Exchange::exclusive_or: source = lane ^ (operand & 31); break;
    case Exchange::barrier: break;
  }
  if (source > last) source = lane;
  self.kind = kind;
  self.mask = mask;
  self.source = static_cast<unsigned>(source);
  self.value = value;
  warp.exchanging |= 1u << lane;
  set_runnable(*engine.block, w, 1u << lane, false);
  try_finish_exchange(self);
  run_another();
  return self.value;
}

}  // namespace fusegen::emulate
