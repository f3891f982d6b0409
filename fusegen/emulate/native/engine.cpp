// Runs the clusters of a launch one after another, in random order unless asked not to, the threads of their blocks as
// fibres.
#include <numeric>
#include <utility>

#include "cluster.h"
#include "copies.h"
#include "counters.h"
#include "hooks.h"
#include "schedule.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace fusegen::emulate {
namespace {

void run_thread() {
  engine.body(engine.closure);
  Block& block = *engine.block;
  Thread& self = *engine.current;
  if (!self.copies.empty()) fail(&self, "exits with a copy to shared memory that it has not waited for");
  const unsigned w = self.number / warp_size;
  const unsigned bit = 1u << self.number % warp_size;
  Warp& warp = block.warps[w];
  warp.live &= ~bit;
  set_runnable(block, w, bit, false);
  // A thread that has exited counts as arrived at barriers, but has no value for a shuffle.
  for (unsigned rest = warp.exchanging; rest; rest &= rest - 1) {
    Thread& other = block.threads[w * warp_size + static_cast<unsigned>(__builtin_ctz(rest))];
    if (!(other.mask & bit) || !(warp.exchanging >> other.number % warp_size & 1)) continue;
    if (other.kind == Exchange::barrier) {
      try_finish_exchange(other);
    } else {
      fail(&other, "waits at %s:%d with mask 0x%08x for lane %u, which has exited", AT(other.site),
           other.mask, self.number % warp_size);
    }
  }
  if (self.arrivals > engine.phase) --engine.arrived;
  --engine.live;
  if (--block.live == 0) leave_cluster(block);
  if (engine.live == 0) {
    engine.current = nullptr;
    switch_fibre(self.fibre, engine.outside);
  }
  if (block.live != 0 && block.at_barrier == block.live) finish_barrier(block);
  try_finish_phase();
  run_another();
  __builtin_unreachable();
}

// All of its threads alive, and none of them has run.
void begin_block(Block& block) {
  const unsigned count = engine.thread_count;
  const unsigned first_stack = block.rank * count;
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    thread.number = i;
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    thread.visitor = {static_cast<Who>(block.rank << rank_shift | i), 0, 0};
    thread.arrivals = thread.waits = 0;
    thread.waits_for_cluster = false;
    thread.acquired.clear();
    thread.copies.clear();
    thread.batches = 0;
    const unsigned stack = first_stack + i;
    prepare_fibre(thread.fibre, engine.stacks.stack(stack), Stacks::usable(stack), run_thread);
  }
  block.runnable_warps = 0;
  for (unsigned w = 0; w * warp_size < count; ++w) {
    const unsigned lanes = count - w * warp_size;
    block.warps[w] = {lanes < warp_size ? (1u << lanes) - 1 : ~0u, 0, 0};
    set_runnable(block, w, block.warps[w].live, true);
  }
  block.live = count;
  block.at_barrier = 0;
  block.warp = no_warp;
  block.visited = -1;
  block.waited = 0;
  block.acquired.clear();
  block.acquires = false;
  block.shared.poison();
  block.clock.pass_barrier(engine.clock.now);
}

void run_cluster(std::uint64_t number) {
  const auto x = static_cast<unsigned>(number % gridDim.x);
  const auto y = static_cast<unsigned>(number / gridDim.x);
  engine.random_state = mix(mix(mix(engine.seed) + engine.launches) + number);
  constexpr unsigned probabilities[] = {0, 256, 8};
  engine.leave_probability = probabilities[(engine.seed + number) % 3];
  engine.clock.begin_cluster();
  for (unsigned rank = 0; rank < engine.cluster; ++rank) {
    engine.blocks[rank].index = {x, y, rank};
    engine.blocks[rank].rank = rank;
    begin_block(engine.blocks[rank]);
  }
  engine.live = engine.cluster * engine.thread_count;
  engine.phase = engine.arrived = 0;
  engine.current = nullptr;
  choose_block(random_bits() & 0xffff);
  run_another();
  for (unsigned rank = 0; rank < engine.cluster; ++rank) {
    Block& block = engine.blocks[rank];
    std::ptrdiff_t where = 0;
    if (!block.shared.damaged(&where)) continue;
    enter_block(block);
    fail(nullptr, "a thread wrote byte %td of the block's %zu bytes of shared memory", where, block.shared.bytes());
  }
}

bool prepare_memory(std::size_t shared) {
  constexpr std::size_t smallest_element = 2;
  if (!engine.stacks.reserve(engine.cluster * engine.thread_count)) return false;
  for (unsigned rank = 0; rank < engine.cluster; ++rank) {
    Block& block = engine.blocks[rank];
    if (!block.shared.place(shared)) return false;
    if (!block.shadow.reserved() && !block.shadow.reserve(SharedMemory::limit, smallest_element)) return false;
  }
  return true;
}

}  // namespace

void* shared_bytes() { return engine.block->shared.data(); }

cudaError_t last_error(bool reset) {
  const Lock lock(engine_mutex);
  // A failed kernel's error stays, as in CUDA.
  if (engine.report.text[0]) return cudaErrorLaunchFailure;
  return reset ? std::exchange(last, cudaSuccess) : last;
}

cudaError_t run(const void* kernel, dim3 grid, dim3 block, std::size_t shared,
                void (*body)(void*), void* closure) {
  const Lock lock(engine_mutex);
  if (engine.report.text[0]) return cudaErrorLaunchFailure;
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  if (!kernel) return last = cudaErrorInvalidDeviceFunction;
  // A size of 0 wraps around and is too large as well.
  if (threads == 0 || threads > most_threads || block.z > 64 || grid.x - 1 > 0x7ffffffeu ||
      grid.y - 1 > 65534 || grid.z - 1 >= most_blocks || shared > SharedMemory::limit) {
    return last = cudaErrorInvalidConfiguration;
  }
  engine.kernel = kernel;
  engine.body = body;
  engine.closure = closure;
  engine.thread_count = static_cast<unsigned>(threads);
  engine.cluster = grid.z;
  gridDim = grid;
  blockDim = block;
  if (!prepare_memory(shared)) return last = cudaErrorMemoryAllocation;
  // Steps of a size that shares no factor with the number of clusters come to each cluster once.
  const std::uint64_t clusters = std::uint64_t(grid.x) * grid.y;
  const std::uint64_t random = mix(mix(engine.seed) + engine.launches++);
  const std::uint64_t first = engine.in_order ? 0 : random / 7;
  std::uint64_t step = engine.in_order ? 1 : random % clusters | 1;
  while (std::gcd(step, clusters) != 1) ++step;
  engine.clock.begin_launch();
  engine.released.clear();
  engine.faults.enter(describe_signal);
  launches = true;
  if (sigsetjmp(engine.faults.escape, 1) == 0) {
    for (std::uint64_t i = 0; i < clusters; ++i) run_cluster((first + i * step) % clusters);
  }
  launches = false;
  engine.faults.leave();
  engine.stacks.trim();
  engine.code_address = 0;
  engine.current = nullptr;
  return engine.report.text[0] ? cudaErrorLaunchFailure : last;
}

}  // namespace fusegen::emulate

// Whom emulated bindings ask for a launcher: emulate/launchers.py.
extern "C" {
void* (*fusegen_emulate_resolve)(const char* key, std::int64_t mode, const char* name,
                                 char* why) = nullptr;
}

// What Python calls, around each call of a launcher.
extern "C" void fusegen_emulate_watch(const fusegen::emulate::Watched* watched, std::int64_t count) {
  const fusegen::emulate::Lock lock(fusegen::emulate::engine_mutex);
  fusegen::emulate::engine.regions.watch(watched, static_cast<std::size_t>(count));
}

extern "C" void fusegen_emulate_begin(std::uint64_t seed) {
  const fusegen::emulate::Lock lock(fusegen::emulate::engine_mutex);
  auto& engine = fusegen::emulate::engine;
  engine.seed = seed;
  engine.launches = 0;
  fusegen::emulate::last = cudaSuccess;
  engine.report = {};
}

extern "C" const fusegen::emulate::Report* fusegen_emulate_report() {
  return &fusegen::emulate::engine.report;
}
