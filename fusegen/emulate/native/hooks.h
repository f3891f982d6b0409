// Every access of a kernel to memory comes by here before it happens: kernels are compiled with
// -fsanitize=thread, whose calls these are, but linked without its run-time library.
// Included once, by engine.cpp.
#pragma once

#include <algorithm>

#include "state.h"

namespace fusegen::emulate {
namespace {

struct Attempt {
  const unsigned char* address;
  std::size_t bytes;
  bool writes;

  const char* verb() const { return writes ? "writes" : "reads"; }
};

// What the attempt is about, in words; `found` is the other access.
void describe_race(char (&text)[128], Order order, Who who, const char* found) {
  if (order == Order::other_cluster) {
    std::snprintf(text, sizeof text, "another block has %s", found);
  } else if (order == Order::other_rank) {
    std::snprintf(text, sizeof text, "another block of the cluster has %s, with no cluster barrier in between", found);
  } else if (who & (several_lanes | several_warps)) {
    std::snprintf(text, sizeof text, "other threads have %s since the last barrier", found);
  } else {
    const uint3 index = engine.block->threads[who & number_bits].index;
    std::snprintf(text, sizeof text, "thread (%u, %u, %u) has %s since the last barrier", index.x, index.y,
                  index.z, found);
  }
}

View view_since(std::uint32_t since) {
  return {engine.clock,  engine.block->clock,     engine.current->visitor,
          since,         engine.block->acquired, engine.current->acquired};
}

// Remembers the access to one cell. Returns whether it is a race, which `text` then describes.
bool races(Cell& cell, bool writes, const View& view, char (&text)[128]) {
  const Order to_write = cell.to_write(view);
  if (to_write != Order::settled) {
    describe_race(text, to_write, cell.writer(), "written");
    return true;
  }
  if (!writes) {
    cell.read(view);
    return false;
  }
  const Order to_reads = cell.to_reads(view);
  if (to_reads != Order::settled) {
    describe_race(text, to_reads, cell.reader(), "read");
    return true;
  }
  cell.write(view);
  return false;
}

// What another block of the cluster owns may be accessed from when it has begun until it exits.
void check_visit(Block& owner, const Attempt& attempt) {
  const Thread& self = *engine.current;
  if (self.waits == 0) {
    fail(&self, "%s another block's shared memory, with no cluster barrier behind which that block has begun",
         attempt.verb());
  }
  if (owner.live == 0) fail(&self, "%s the shared memory of a block that has exited", attempt.verb());
  owner.visited = std::max(owner.visited, int(self.arrivals));
}

const char* whose_memory(const Block& owner) { return &owner == engine.block ? "the block's" : "another block's"; }

// Where in the block's shared memory the attempt begins.
std::ptrdiff_t check_bounds(const Block& owner, const Attempt& attempt) {
  const std::ptrdiff_t first = attempt.address - owner.shared.data();
  const auto size = static_cast<std::ptrdiff_t>(owner.shared.bytes());
  const auto last = first + static_cast<std::ptrdiff_t>(attempt.bytes) - 1;
  const auto stray = [&](std::ptrdiff_t at) { return at < 0 || at >= size; };
  if (stray(first) || stray(last)) {
    fail(engine.current, "%s byte %td of %s %td bytes of shared memory", attempt.verb(), stray(first) ? first : size,
         whose_memory(owner), size);
  }
  return first;
}

void check_shared(Block& owner, const Attempt& attempt) {
  const std::ptrdiff_t first = check_bounds(owner, attempt);
  const char* whose = whose_memory(owner);
  const auto size = static_cast<std::ptrdiff_t>(owner.shared.bytes());
  const auto last = first + static_cast<std::ptrdiff_t>(attempt.bytes) - 1;
  if (&owner != engine.block) check_visit(owner, attempt);
  char text[128];
  const View view = view_since(engine.clock.cluster);
  const auto granule = static_cast<std::ptrdiff_t>(owner.shadow.granule());
  for (std::ptrdiff_t at = first / granule * granule; at <= last; at += granule) {
    Cell& cell = owner.shadow.at(static_cast<std::size_t>(at / granule));
    if (!attempt.writes && !cell.written_since(engine.clock.cluster)) {
      fail(engine.current, "reads byte %td of %s %td bytes of shared memory, which nothing has written", at, whose,
           size);
    }
    if (races(cell, attempt.writes, view, text)) {
      fail(engine.current, "%s byte %td of %s %td bytes of shared memory, which %s", attempt.verb(), at, whose, size,
           text);
    }
  }
}

[[noreturn]] void fail_at(const unsigned char* address, const Attempt& attempt, const char* before = "",
                          const char* what = "") {
  engine.report.is_global = 1;
  engine.report.address = reinterpret_cast<std::uint64_t>(address);
  fail(engine.current, "%s global memory at %p%s%s", attempt.verb(), static_cast<const void*>(address), before,
       what);
}

bool is_poison(const unsigned char* address, std::size_t bytes) {
  for (; bytes; --bytes) {
    if (*address++ != poison_byte) return false;
  }
  return true;
}

void check_global(Region& region, const Attempt& attempt) {
  const unsigned char* end = attempt.address + attempt.bytes;
  if (attempt.address < region.data) fail_at(attempt.address, attempt);
  if (end > region.data + region.bytes) {
    fail_at(attempt.address < region.data + region.bytes ? region.data + region.bytes : attempt.address, attempt);
  }
  const std::size_t granule = region.shadow.granule();
  const auto first = static_cast<std::size_t>(attempt.address - region.data) / granule;
  const auto last = static_cast<std::size_t>(end - 1 - region.data) / granule;
  char text[128];
  const View view = view_since(engine.clock.launch);
  for (std::size_t i = first; i <= last; ++i) {
    const unsigned char* at = region.data + i * granule;
    Cell& cell = region.shadow.at(i);
    if (races(cell, attempt.writes, view, text)) fail_at(at, attempt, ", which ", text);
    // The poison itself too: an earlier call may have written.
    if (region.poisoned && !attempt.writes && !cell.written() && is_poison(at, granule)) {
      fail_at(at, attempt, ", which nothing has written");
    }
  }
}

// alignment: what the access's type promises of the address.
void check(const void* address, std::size_t bytes, bool writes, const void* caller, std::size_t alignment = 1) {
  if (!launches || !engine.current) return;  // a launcher's own access
  const Attempt attempt{static_cast<const unsigned char*>(address), bytes, writes};
  if (engine.stacks.contains(address)) return;
  Block* owner = owner_of(address);
  Region* region = owner ? nullptr : engine.regions.find(attempt.address);
  if (!owner && !region) return;
  // The call returns behind itself; the instruction before that has the line of the access.
  engine.code_address = reinterpret_cast<std::uint64_t>(caller) - 1;
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    fail(engine.current, "makes a misaligned access, of %zu bytes", bytes);
  }
  if (owner) {
    check_shared(*owner, attempt);
  } else {
    check_global(*region, attempt);
  }
  engine.code_address = 0;
}

}  // namespace
}  // namespace fusegen::emulate

#define FUSEGEN_HOOK(name, bytes, writes, alignment)                                            \
  extern "C" void __tsan_##name(void* address) {                                                \
    fusegen::emulate::check(address, bytes, writes, __builtin_return_address(0), alignment);    \
  }
#define FUSEGEN_HOOKS(bytes)                              \
  FUSEGEN_HOOK(read##bytes, bytes, false, bytes)          \
  FUSEGEN_HOOK(write##bytes, bytes, true, bytes)          \
  FUSEGEN_HOOK(unaligned_read##bytes, bytes, false, 1)    \
  FUSEGEN_HOOK(unaligned_write##bytes, bytes, true, 1)
FUSEGEN_HOOK(read1, 1, false, 1)
FUSEGEN_HOOK(write1, 1, true, 1)
FUSEGEN_HOOKS(2)
FUSEGEN_HOOKS(4)
FUSEGEN_HOOKS(8)
FUSEGEN_HOOKS(16)
#undef FUSEGEN_HOOKS
#undef FUSEGEN_HOOK

extern "C" void __tsan_read_range(void* address, std::size_t bytes) {
  fusegen::emulate::check(address, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, std::size_t bytes) {
  fusegen::emulate::check(address, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
