// Copies to shared memory that a thread asks for and waits for later. Included once, by engine.cpp.
#pragma once

#include "hooks.h"

namespace fusegen::emulate {

void copy_later(void* to, const void* from, std::size_t bytes) {
  Thread& self = *engine.current;
  const void* caller = __builtin_return_address(0);
  const std::uint64_t code_address = reinterpret_cast<std::uint64_t>(caller) - 1;
  engine.code_address = code_address;
  const auto misaligned = [&](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % bytes != 0; };
  if (bytes != 4 && bytes != 8 && bytes != 16) fail(&self, "copies %zu bytes at a time to shared memory", bytes);
  if (misaligned(to) || misaligned(from)) fail(&self, "copies %zu bytes to or from an address between them", bytes);
  if (owner_of(to) != engine.block) fail(&self, "copies to %p, which is not in its block's shared memory", to);
  if (owner_of(from) || engine.stacks.contains(from)) fail(&self, "copies from %p, which is not global memory", from);
  // Nobody may ever wait for it: what it would do wrong is wrong from here on.
  check_bounds(*engine.block, {static_cast<unsigned char*>(to), bytes, true});
  check(from, bytes, false, caller);
  engine.code_address = code_address;
  char readable[16];
  std::memcpy(readable, from, bytes);
  asm volatile("" : : "r"(readable) : "memory");  // which the compiler must not leave out
  engine.code_address = 0;
  self.copies.push_back({to, from, bytes, self.batches});
}

void end_batch() { ++engine.current->batches; }

void wait_for_batches(unsigned left) {
  Thread& self = *engine.current;
  // The accesses are those of the wait: nothing else can tell where they happen.
  const void* caller = __builtin_return_address(0);
  while (!self.copies.empty() && self.copies.front().batch + left < self.batches) {
    const Copy copy = self.copies.front();
    self.copies.pop_front();
    check(copy.from, copy.bytes, false, caller);
    check(copy.to, copy.bytes, true, caller);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

}  // namespace fusegen::emulate
