// The engine's state and how it reports an error. Included once, by engine.cpp.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "emulate_engine.h"
#include "fault.h"
#include "fibre.h"
#include "regions.h"
#include "shadow.h"
#include "shared.h"

namespace fusegen::emulate {
namespace {

constexpr unsigned warp_size = 32;
constexpr unsigned most_threads = 1024;
constexpr unsigned most_blocks = 8;  // of a cluster: what every GPU that has clusters can run
constexpr unsigned no_warp = most_threads / warp_size;

// Not yet made: see copies.h.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  unsigned batch;
};

struct Thread {
  Fibre fibre;
  uint3 index;
  unsigned number;
  Site site;  // of the barrier or shuffle at which it waits
  // What it brings to the shuffle at which it waits; value then receives what it gets from it.
  Exchange kind;
  unsigned mask;
  unsigned source;
  std::uint64_t value;
  Visitor visitor;
  // Halves of the cluster's barriers that it has come through.
  unsigned arrivals;
  unsigned waits;
  bool waits_for_cluster;
  std::vector<Span> acquired;  // since the block's last barrier
  std::deque<Copy> copies;
  unsigned batches;  // of copies that it has ended
};

struct Warp {  // a bit for each lane
  unsigned live;
  unsigned runnable;
  unsigned exchanging;
};

struct Block {
  uint3 index;
  unsigned rank;
  Thread threads[most_threads];
  Warp warps[most_threads / warp_size];
  BlockClock clock;
  SharedMemory shared;
  Shadow shadow;  // of the shared memory
  unsigned live;
  unsigned at_barrier;
  const Thread* first_at_barrier;
  unsigned runnable_warps;
  unsigned warp;  // in which to go on
  // What the block must not exit before: the arrivals of those who have accessed its shared memory from other
  // blocks, and what its own threads have waited for.
  int visited;
  int waited;
  std::vector<Span> acquired;  // by its last barrier
  bool acquires;               // whether one of its threads has, since
};

struct Engine {
  std::uint64_t seed = 0;
  std::uint64_t launches = 0;  // since the seed was set
  Report report = {};
  Faults faults;
  Stacks stacks;
  Regions regions;
  Clock clock;
  // Of each counter in this launch, what is ordered before each time that it was added to.
  std::map<const unsigned*, std::vector<std::vector<Span>>> released;
  unsigned in_order = 0;
  std::uint64_t code_address = 0;  // of the access that a report is about, or 0

  // The launch
  const void* kernel = nullptr;
  void (*body)(void*) = nullptr;
  void* closure = nullptr;
  Fibre outside;
  unsigned thread_count = 0;        // of a block
  unsigned cluster = 1;             // how many blocks one has

  // The cluster: its blocks run at the same time. A launch without clusters has one block in each.
  Block blocks[most_blocks];
  Block* block = blocks;            // whose thread runs
  Thread* current = nullptr;
  unsigned live = 0;
  unsigned phase = 0;               // cluster barriers that all have arrived at
  unsigned arrived = 0;             // live threads that have arrived at the next one
  unsigned leave_probability = 0;   // of 1024
  std::uint64_t random_state = 0;
};
Engine engine;

// Held by who reads or sets the engine's state, by a launch from beginning to end.
std::recursive_mutex engine_mutex;
using Lock = std::lock_guard<std::recursive_mutex>;
thread_local cudaError_t last = cudaSuccess;  // the last error, as CUDA has it: of each thread
// Whether it is this thread that launches. The model makes reading it, at each access, as fast as of a global.
thread_local bool launches __attribute__((tls_model("initial-exec"))) = false;

// The block of the cluster whose shared memory, or what guards it, has the address; or null.
Block* owner_of(const void* address) {
  for (unsigned rank = 0; rank < engine.cluster; ++rank) {
    if (engine.blocks[rank].shared.contains(address)) return &engine.blocks[rank];
  }
  return nullptr;
}

void enter_block(Block& block) {
  engine.block = &block;
  blockIdx = block.index;
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

bool operator==(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

// For the two arguments of "%s:%d".
#define AT(site) base_name((site).file), (site).line

// Writes the report and leaves the launch. Without a thread the fault was found after the block had run.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const Thread* thread, const char* format, ...) {
  Report& report = engine.report;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(report.text, sizeof report.text, format, arguments);
  va_end(arguments);
  void* kernel_base = nullptr;
  void* code_base = nullptr;
  report.kernel_offset = offset_in_library(engine.kernel, &kernel_base);
  const auto code = offset_in_library(reinterpret_cast<void*>(engine.code_address), &code_base);
  report.code_offset = code_base == kernel_base ? code : 0;
  report.block[0] = blockIdx.x, report.block[1] = blockIdx.y, report.block[2] = blockIdx.z;
  report.has_thread = thread != nullptr;
  if (thread) {
    const uint3 index = thread->index;
    report.thread[0] = index.x, report.thread[1] = index.y, report.thread[2] = index.z;
  }
  siglongjmp(engine.faults.escape, 1);
}

void describe_signal(int signal, void* address, bool write) {
  // What the engine accesses for a kernel is accessed where the kernel asks for it.
  if (!engine.code_address) engine.code_address = engine.faults.code_address();
  const char* verb = write ? "writes" : "reads";
  const auto at = static_cast<const unsigned char*>(address);
  if (signal == SIGFPE) fail(engine.current, "divides an integer by zero");
  if (signal == SIGILL) {
    fail(engine.current,
         "makes a misaligned access, leaves an array's bounds, or overflows a signed integer");
  }
  if (const Block* owner = owner_of(address)) {
    fail(engine.current, "%s byte %td of %s %zu bytes of shared memory", verb, at - owner->shared.data(),
         owner == engine.block ? "the block's" : "another block's", owner->shared.bytes());
  }
  if (engine.stacks.contains(address)) {
    fail(engine.current, "overflows its stack of %zu bytes", Stacks::bytes);
  }
  engine.report.is_global = 1;
  engine.report.address = reinterpret_cast<std::uint64_t>(address);
  fail(engine.current, "%s global memory at %p", verb, address);
}

}  // namespace
}  // namespace fusegen::emulate
