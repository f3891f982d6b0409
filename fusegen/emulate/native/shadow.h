// What is remembered of the accesses to memory: who wrote and who read each piece of it last, and when.
// An access that conflicts with another one, and that no barrier orders, is a race, whichever of the two came
// first this time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace fusegen::emulate {

// Time passes at barriers only, so that an earlier stamp is one that a barrier orders. Clusters run one after
// another: a stamp from before this cluster began, but not before the launch, is another cluster's.
struct Clock {
  std::uint32_t now = 1;
  std::uint32_t launch = 1;   // when it began
  std::uint32_t cluster = 1;  // when it began

  void begin_launch() { launch = ++now; }
  void begin_cluster() { cluster = ++now; }
};

// When the threads of one block last met.
struct BlockClock {
  std::uint32_t barrier;           // the block's last barrier
  std::uint32_t warp_barrier[32];  // a warp's last barrier of any kind; one of some lanes orders them all

  void pass_barrier(std::uint32_t now) {
    barrier = now;
    for (auto& each : warp_barrier) each = now;
  }
};

// A thread: its number in its block and, in the bits above, the block's rank in the cluster. Or several threads of
// one block, with its rank in the same bits. Or one of the last two.
using Who = std::uint16_t;
constexpr unsigned rank_shift = 10;
constexpr Who several_lanes = 0x8000;   // | the number of their warp
constexpr Who several_warps = 0x4000;
constexpr Who several_ranks = 0xfffe;   // blocks of one cluster
constexpr Who several_blocks = 0xffff;  // of more than one

enum class Order { settled, other_thread, other_rank, other_cluster };

// Who accesses memory, and what that thread knows of the past.
struct View {
  std::uint32_t now;
  std::uint32_t since;  // nothing earlier counts
  std::uint32_t cluster;
  std::uint32_t barrier;
  std::uint32_t warp_barrier;
  Who who;
  // Halves of the cluster's barriers. What others did before they arrived is known to who has waited as often.
  std::uint16_t arrivals;
  std::uint16_t waits;

  Who rank() const { return who >> rank_shift; }
  unsigned warp() const { return (who & ((1u << rank_shift) - 1)) / 32; }
};

// One piece of memory. Stamps of 0 are from before the clock began.
class Cell {
 public:
  bool written() const { return write_.stamp != 0; }
  bool written_since(std::uint32_t time) const { return write_.stamp >= time; }
  Who writer() const { return write_.who; }
  Who reader() const { return read_.who; }

  // How an access relates to the last write, or to the last reads.
  Order to_write(const View& view) const { return write_.order(view); }
  Order to_reads(const View& view) const { return read_.order(view); }

  void write(const View& view) { write_ = {view.now, view.who, view.arrivals}; }

  // Keeps of several readers as much as a later write of any thread needs to know.
  void read(const View& view) { read_ = {view.now, readers(view), last_arrivals(view)}; }

 private:
  struct Access {
    std::uint32_t stamp;
    Who who;
    std::uint16_t arrivals;

    bool is_of_rank(const View& view) const {
      return who != several_ranks && (who >> rank_shift & (most_ranks - 1)) == view.rank();
    }
    bool is_of_warp(const View& view) const {
      if (who & several_warps) return false;
      return who & several_lanes ? (who & 31u) == view.warp() : (who & ((1u << rank_shift) - 1)) / 32 == view.warp();
    }

    Order order(const View& view) const {
      if (stamp < view.since) return Order::settled;
      if (stamp < view.cluster || who == several_blocks) return Order::other_cluster;
      if (arrivals < view.waits) return Order::settled;
      if (!is_of_rank(view)) return Order::other_rank;
      if (stamp < view.barrier || who == view.who) return Order::settled;
      return is_of_warp(view) && stamp < view.warp_barrier ? Order::settled : Order::other_thread;
    }
  };

  Who readers(const View& view) const {
    if (read_.stamp < view.since) return view.who;
    if (read_.stamp < view.cluster || read_.who == several_blocks) return several_blocks;
    if (read_.arrivals < view.waits) return view.who;
    if (!read_.is_of_rank(view)) return several_ranks;
    if (read_.stamp < view.barrier || read_.who == view.who) return view.who;
    const Who rank = static_cast<Who>(view.rank() << rank_shift);
    if (!read_.is_of_warp(view)) return several_warps | rank;
    return read_.stamp < view.warp_barrier ? view.who : static_cast<Who>(several_lanes | rank | view.warp());
  }

  std::uint16_t last_arrivals(const View& view) const {
    const bool counts = read_.stamp >= view.since && read_.stamp >= view.cluster && read_.arrivals > view.arrivals;
    return counts ? read_.arrivals : view.arrivals;
  }

  static constexpr unsigned most_ranks = 8;

  Access write_ = {};
  Access read_ = {};
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
