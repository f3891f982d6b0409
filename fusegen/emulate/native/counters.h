// Counters in global memory by which the blocks of a launch wait for each other. Included once, by engine.cpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "hooks.h"
#include "schedule.h"

namespace fusegen::emulate {
namespace {

// The counter's own accesses race with nobody's: they are atomic.
void check_counter(const void* counter, std::size_t bytes, const void* caller, bool adds) {
  const auto* address = static_cast<const unsigned char*>(counter);
  const Region* region = engine.regions.find(address);
  if (!region) return;
  engine.code_address = reinterpret_cast<std::uint64_t>(caller) - 1;
  const Attempt attempt{address, bytes, adds};
  if (address < region->data || address + bytes > region->data + region->bytes) fail_at(address, attempt);
  if (region->poisoned && is_poison(address, bytes)) {
    fail(engine.current, "%s a counter that nothing has set", adds ? "adds to" : "waits for");
  }
  engine.code_address = 0;
}

}  // namespace

void add_and_release(unsigned* counter) {
  check_counter(counter, sizeof *counter, __builtin_return_address(0), true);
  const Block& block = *engine.block;
  const Thread& self = *engine.current;
  // What others of the block did since its last barrier is not ordered before this.
  std::vector<Span> spans{{engine.clock.cluster, block.clock.barrier}};
  spans.insert(spans.end(), block.acquired.begin(), block.acquired.end());
  spans.insert(spans.end(), self.acquired.begin(), self.acquired.end());
  engine.released[counter].push_back(std::move(spans));
  ++*counter;
}

namespace {

template <typename T>
T updated(T old, Atomic kind, T value) {
  if (kind == Atomic::add) return old + value;
  if (kind == Atomic::bits) return old | value;
  using Signed = std::make_signed_t<T>;
  return T(std::max(Signed(old), Signed(value)));
}

template <typename T>
T update(void* number, Atomic kind, T value) {
  T old;
  std::memcpy(&old, number, sizeof old);
  const T now = updated(old, kind, value);
  std::memcpy(number, &now, sizeof now);
  return old;
}

}  // namespace

std::uint64_t update_atomically(void* number, std::size_t bytes, Atomic kind, std::uint64_t value) {
  check_counter(number, bytes, __builtin_return_address(0), true);
  return bytes == 4 ? update(number, kind, std::uint32_t(value)) : update(number, kind, value);
}

void acquire_from(const unsigned* counter, unsigned least) {
  check_counter(counter, sizeof *counter, __builtin_return_address(0), false);
  // Blocks run one after another: who has to add to it and has not done so never will.
  if (*counter < least) {
    fail(engine.current, "waits until a counter is %u, which no block before this one brings beyond %u", least,
         *counter);
  }
  // Whoever finds the counter at `least` may have found what any so many of them did, and nothing of the others.
  std::vector<std::vector<Span>> found = engine.released[counter];
  Thread& self = *engine.current;
  for (std::size_t i = 0; i < least && i < found.size(); ++i) {
    std::swap(found[i], found[i + random_bits() % (found.size() - i)]);
    self.acquired.insert(self.acquired.end(), found[i].begin(), found[i].end());
  }
  engine.block->acquires = true;
}

InOrder::InOrder() {
  engine_mutex.lock();
  ++engine.in_order;
}

InOrder::~InOrder() {
  --engine.in_order;
  engine_mutex.unlock();
}

}  // namespace fusegen::emulate
