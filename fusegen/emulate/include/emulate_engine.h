// What the stand-in headers ask of the engine (native/engine.cpp).
#pragma once

#include <utility>

#include "emulate_types.h"

// Of the emulated thread that is running; the engine sets them whenever it switches threads.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace fusegen::emulate {

// A place in the emitted source. Unlike a return address it stays the same when the compiler duplicates code.
struct Site {
  const char* file;
  int line;
};

enum class Exchange { index, up, down, exclusive_or, barrier };

void block_barrier(Site site);

// Waits for the lanes that the mask names; returns the value that the lane chosen by kind, operand and width
// brought to this same call.
std::uint64_t exchange(Exchange kind, unsigned mask, std::uint64_t value, int operand, int width, Site site);

// The halves of a barrier of all threads of a cluster.
void cluster_arrive(Site site);
void cluster_wait(Site site);

// A copy to shared memory that the running thread asks for. It is made where the thread waits for it and not
// before, so that whoever reads it too early finds what was there.
void copy_later(void* to, const void* from, std::size_t bytes);
void end_batch();
// Makes the copies of all batches but the last `left`.
void wait_for_batches(unsigned left);

// Counters in global memory by which a launch's blocks wait for each other. Who has found a counter at `least`, and
// the block behind its next barrier, may access what was done before whatever was added to it.
void add_and_release(unsigned* counter);
void acquire_from(const unsigned* counter, unsigned least);
// Updates a number of 4 or 8 bytes, which races with no other update of this kind; returns what it was.
enum class Atomic { add, largest, bits };
std::uint64_t update_atomically(void* number, std::size_t bytes, Atomic kind, std::uint64_t value);

// While there is one, blocks run in the order of their indices.
struct InOrder {
  InOrder();
  ~InOrder();
};

// What block `rank` of the cluster has where this block has `address`, in shared memory.
void* peer_address(void* address, unsigned rank);

void* shared_bytes();
cudaError_t last_error(bool reset);

// Runs body(closure) once for each thread of the grid; the blocks that differ in z alone are a cluster and run
// together. kernel only identifies the launch in an error.
cudaError_t run(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                void (*body)(void*), void* closure);

template <typename... Params, typename... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, dim3 block,
                   std::size_t shared_bytes, Args&&... args) {
  // The outer lambda's parameters convert the arguments once, as a launch does; each thread gets a copy.
  return [&](Params... values) {
    auto thread = [&] { kernel(values...); };
    auto body = [](void* closure) { (*static_cast<decltype(thread)*>(closure))(); };
    return run(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, body, &thread);
  }(std::forward<Args>(args)...);
}

}  // namespace fusegen::emulate
