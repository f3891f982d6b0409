// Runs the blocks of a launch one after another in random order, the threads of a block as fibres.
#include <numeric>

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
  Thread& self = *engine.current;
  const unsigned w = self.number / warp_size;
  const unsigned bit = 1u << self.number % warp_size;
  Warp& warp = engine.warps[w];
  warp.live &= ~bit;
  set_runnable(w, bit, false);
  // A thread that has exited counts as arrived at barriers, but has no value for a shuffle.
  for (unsigned rest = warp.exchanging; rest; rest &= rest - 1) {
    Thread& other = engine.threads[w * warp_size + static_cast<unsigned>(__builtin_ctz(rest))];
    if (!(other.mask & bit) || !(warp.exchanging >> other.number % warp_size & 1)) continue;
    if (other.kind == Exchange::barrier) {
      try_finish_exchange(other);
    } else {
      fail(&other, "waits at %s:%d with mask 0x%08x for lane %u, which has exited", AT(other.site),
           other.mask, self.number % warp_size);
    }
  }
  if (--engine.live == 0) {
    engine.current = nullptr;
    switch_fibre(self.fibre, engine.outside);
  }
  if (engine.at_barrier == engine.live) finish_barrier();
  run_another();
  __builtin_unreachable();
}

void run_block(std::uint64_t number) {
  const std::uint64_t row = number / gridDim.x;
  blockIdx = {static_cast<unsigned>(number % gridDim.x), static_cast<unsigned>(row % gridDim.y),
              static_cast<unsigned>(row / gridDim.y)};
  engine.random_state = mix(mix(mix(engine.seed) + engine.launches) + number);
  constexpr unsigned probabilities[] = {0, 256, 8};
  engine.leave_probability = probabilities[(engine.seed + number) % 3];
  const unsigned count = engine.thread_count;
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = engine.threads[i];
    thread.number = i;
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    prepare_fibre(thread.fibre, engine.stacks.stack(i), Stacks::usable(i), run_thread);
  }
  engine.runnable_warps = 0;
  for (unsigned w = 0; w * warp_size < count; ++w) {
    const unsigned lanes = count - w * warp_size;
    engine.warps[w] = {lanes < warp_size ? (1u << lanes) - 1 : ~0u, 0, 0};
    set_runnable(w, engine.warps[w].live, true);
  }
  engine.live = count;
  engine.at_barrier = 0;
  engine.warp = no_warp;
  engine.current = nullptr;
  engine.shared.poison();
  engine.clock.begin_block();
  run_another();
  std::ptrdiff_t where = 0;
  if (engine.shared.damaged(&where)) {
    fail(nullptr, "a thread wrote byte %td of the block's %zu bytes of shared memory", where,
         engine.shared.bytes());
  }
}

bool make_shadow() {
  constexpr std::size_t smallest_element = 2;
  Shadow& shadow = engine.shared_shadow;
  return shadow.reserved() || shadow.reserve(SharedMemory::limit, smallest_element);
}

}  // namespace

void* shared_bytes() { return engine.shared.data(); }

cudaError_t last_error(bool reset) {
  const cudaError_t error = engine.error;
  // A failed kernel's error stays, as in CUDA.
  if (reset && !engine.report.text[0]) engine.error = cudaSuccess;
  return error;
}

cudaError_t run(const void* kernel, dim3 grid, dim3 block, std::size_t shared, void (*body)(void*),
                void* closure) {
  if (engine.report.text[0]) return cudaErrorLaunchFailure;
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  if (!kernel) return engine.error = cudaErrorInvalidDeviceFunction;
  // A size of 0 wraps around and is too large as well.
  if (threads == 0 || threads > most_threads || block.z > 64 || grid.x - 1 > 0x7ffffffeu ||
      grid.y - 1 > 65534 || grid.z - 1 > 65534 || shared > SharedMemory::limit) {
    return engine.error = cudaErrorInvalidConfiguration;
  }
  engine.kernel = kernel;
  engine.body = body;
  engine.closure = closure;
  engine.thread_count = static_cast<unsigned>(threads);
  gridDim = grid;
  blockDim = block;
  if (!engine.stacks.reserve(engine.thread_count) || !engine.shared.place(shared) || !make_shadow()) {
    return engine.error = cudaErrorMemoryAllocation;
  }
  // Steps of a size that shares no factor with the number of blocks come to each block once.
  const std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
  const std::uint64_t random = mix(mix(engine.seed) + engine.launches++);
  std::uint64_t step = random % blocks | 1;
  while (std::gcd(step, blocks) != 1) ++step;
  engine.clock.begin_launch();
  engine.faults.enter(describe_signal);
  if (sigsetjmp(engine.faults.escape, 1) == 0) {
    for (std::uint64_t i = 0; i < blocks; ++i) run_block((random / 7 + i * step) % blocks);
  }
  engine.faults.leave();
  engine.code_address = 0;
  engine.current = nullptr;
  return engine.error = engine.report.text[0] ? cudaErrorLaunchFailure : engine.error;
}

}  // namespace fusegen::emulate

// What Python calls, around each call of a launcher.
extern "C" void fusegen_emulate_watch(const fusegen::emulate::Watched* watched, std::int64_t count) {
  fusegen::emulate::engine.regions.watch(watched, static_cast<std::size_t>(count));
}

extern "C" void fusegen_emulate_begin(std::uint64_t seed) {
  auto& engine = fusegen::emulate::engine;
  engine.seed = seed;
  engine.launches = 0;
  engine.error = cudaSuccess;
  engine.report = {};
}

extern "C" const fusegen::emulate::Report* fusegen_emulate_report() {
  return &fusegen::emulate::engine.report;
}
