// What is remembered of the accesses to memory: who wrote and who read each piece of it last, and when.
// An access that conflicts with another one, and that no barrier orders, is a race, whichever of the two came
// first this time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace fusegen::emulate {

// Time passes at barriers only, so that an earlier stamp is one that a barrier orders. Blocks run one after
// another: a stamp from before this block began, but not before the launch, is another block's.
struct Clock {
  std::uint32_t now = 1;
  std::uint32_t launch = 1;       // when it began
  std::uint32_t block = 1;        // when it began
  std::uint32_t barrier = 1;      // the block's last barrier
  std::uint32_t warp_barrier[32]; // a warp's last barrier of any kind; one of some lanes orders them all

  void begin_launch() { launch = ++now; }
  void begin_block() {
    pass_barrier();
    block = now;
  }
  void pass_barrier() {
    barrier = ++now;
    for (auto& each : warp_barrier) each = now;
  }
  void pass_warp_barrier(unsigned warp) { warp_barrier[warp] = ++now; }
};

// A thread's number in its block, or one of:
using Who = std::uint16_t;
constexpr Who several_lanes = 0x8000;  // | the number of their warp
constexpr Who several_warps = 0xfffe;
constexpr Who several_blocks = 0xffff;

enum class Order { settled, other_thread, other_block };

// One piece of memory. Stamps of 0 are from before the clock began.
class Cell {
 public:
  bool written() const { return write_stamp_ != 0; }
  bool written_since(std::uint32_t time) const { return write_stamp_ >= time; }
  Who writer() const { return writer_; }
  Who reader() const { return reader_; }

  // How an access of the thread relates to the last write, or to the last reads. Nothing before `since` counts.
  Order to_write(const Clock& clock, std::uint32_t since, unsigned thread) const {
    return order(clock, since, write_stamp_, writer_, thread);
  }
  Order to_reads(const Clock& clock, std::uint32_t since, unsigned thread) const {
    return order(clock, since, read_stamp_, reader_, thread);
  }

  void write(const Clock& clock, unsigned thread) {
    write_stamp_ = clock.now;
    writer_ = static_cast<Who>(thread);
  }

  // Keeps of several readers as much as a later write of any thread needs to know.
  void read(const Clock& clock, std::uint32_t since, unsigned thread) {
    const unsigned warp = thread / 32;
    if (read_stamp_ < since) {
      reader_ = static_cast<Who>(thread);
    } else if (reader_ == several_blocks || read_stamp_ < clock.block) {
      reader_ = several_blocks;
    } else if (read_stamp_ < clock.barrier) {
      reader_ = static_cast<Who>(thread);
    } else if (reader_ != thread && !of_warp(reader_, warp)) {
      reader_ = several_warps;
    } else if (reader_ != thread) {
      reader_ = static_cast<Who>(read_stamp_ < clock.warp_barrier[warp] ? thread : several_lanes | warp);
    }
    read_stamp_ = clock.now;
  }

 private:
  static bool of_warp(Who who, unsigned warp) {
    if (who >= several_warps) return false;
    return who & several_lanes ? (who & 31u) == warp : who / 32u == warp;
  }

  static Order order(const Clock& clock, std::uint32_t since, std::uint32_t stamp, Who who, unsigned thread) {
    if (stamp < since) return Order::settled;
    if (stamp < clock.block || who == several_blocks) return Order::other_block;
    if (stamp < clock.barrier || who == thread) return Order::settled;
    const bool synced = of_warp(who, thread / 32) && stamp < clock.warp_barrier[thread / 32];
    return synced ? Order::settled : Order::other_thread;
  }

  std::uint32_t write_stamp_ = 0;
  std::uint32_t read_stamp_ = 0;
  Who writer_ = 0;
  Who reader_ = 0;
};

// The cells of one stretch of memory, one for every `granule` bytes: the smallest element that two threads
// access independently.
class Shadow {
 public:
  // The pages of untouched cells cost nothing.
  bool reserve(std::size_t bytes, std::size_t granule) {
    granule_ = granule;
    cells_.reset(static_cast<Cell*>(std::calloc(bytes / granule + 1, sizeof(Cell))));
    return cells_ != nullptr;
  }
  bool reserved() const { return cells_ != nullptr; }
  std::size_t granule() const { return granule_; }
  Cell& at(std::size_t index) { return cells_.get()[index]; }

 private:
  struct Free {
    void operator()(Cell* cells) const { std::free(cells); }
  };
  std::unique_ptr<Cell, Free> cells_;
  std::size_t granule_ = 1;
};

}  // namespace fusegen::emulate
