// What is remembered of the accesses to memory: who wrote and who read each piece of it last, and when.
// An access that conflicts with another one, and that no barrier orders, is a race, whichever of the two came
// first this time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace fusegen::emulate {

// Time passes at barriers only, so that an earlier stamp is one that a barrier orders. Clusters run one after
// another: a stamp from before this cluster began, but not before the launch, is another cluster's.
struct Clock {
  std::uint32_t now = 1;
  std::uint32_t launch = 1;   // when it began
  std::uint32_t cluster = 1;  // when it began
  std::uint32_t met = 1;      // when all of the cluster had arrived at its last barrier

  void begin_launch() { launch = ++now; }
  void begin_cluster() { cluster = met = ++now; }
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
constexpr Who number_bits = 0x03ff;
constexpr Who rank_bits = 0x1c00;
constexpr Who has_arrived = 0x2000;     // at a barrier of the cluster at which others have not
constexpr Who several_warps = 0x4000;
constexpr Who several_lanes = 0x8000;   // | the number of their warp
constexpr Who several_ranks = 0xdffe;   // blocks of one cluster
constexpr Who several_blocks = 0xdfff;  // of more than one

enum class Order { settled, other_thread, other_rank, other_cluster };

// A stretch of time, without its end, in which one block ran.
struct Span {
  std::uint32_t begin;
  std::uint32_t end;
};

struct Visitor {
  Who who;
  // When all had arrived at the last two barriers of the cluster that it has waited for, or 0. The last one orders
  // what was accessed before that time, but not what a thread accessed that had arrived at that very barrier.
  std::uint32_t last_wait;
  std::uint32_t wait_before;

  unsigned warp() const { return (who & number_bits) / 32; }
};

// Who accesses memory, and what orders it. Nothing before `since` counts.
struct View {
  const Clock& clock;
  const BlockClock& block;
  const Visitor& visitor;
  std::uint32_t since;
  // What a counter orders before this: for all of the block, and for the thread.
  const std::vector<Span>& by_block;
  const std::vector<Span>& by_thread;

  bool acquired(std::uint32_t stamp) const {
    const auto holds = [stamp](const Span& span) { return span.begin <= stamp && stamp < span.end; };
    return std::any_of(by_block.begin(), by_block.end(), holds) ||
           std::any_of(by_thread.begin(), by_thread.end(), holds);
  }
};

// One piece of memory. Stamps of 0 are from before the clock began.
class Cell {
 public:
  bool written() const { return write_stamp_ != 0; }
  bool written_since(std::uint32_t time) const { return write_stamp_ >= time; }
  Who writer() const { return writer_; }
  Who reader() const { return reader_; }

  // How an access relates to the last write, or to the last reads.
  Order to_write(const View& view) const { return order(view, write_stamp_, writer_); }
  Order to_reads(const View& view) const {
    if (foreign_stamp_ >= view.since && !view.acquired(foreign_stamp_)) return Order::other_cluster;
    return order(view, read_stamp_, reader_);
  }

  void write(const View& view) {
    write_stamp_ = view.clock.now;
    writer_ = view.visitor.who;
  }

  void read(const View& view) {
    // A counter may order what another cluster has read, also where it is waited for behind this read.
    const bool is_foreign = read_stamp_ >= view.since && read_stamp_ < view.clock.cluster;
    if (is_foreign && reader_ != several_blocks && foreign_stamp_ < view.since) {
      foreign_stamp_ = read_stamp_;
      read_stamp_ = 0;
    }
    reader_ = read_stamp_ < view.since ? view.visitor.who : readers(view);
    read_stamp_ = view.clock.now;
  }

 private:
  static bool is_of_rank(Who who, const Visitor& visitor) {
    return (who & ~has_arrived) != several_ranks && ((who ^ visitor.who) & rank_bits) == 0;
  }
  static bool is_of_warp(Who who, const Visitor& visitor) {
    if (who & several_warps) return false;
    return (who & several_lanes ? who & number_bits : (who & number_bits) / 32u) == visitor.warp();
  }
  static bool is_same(Who who, const Visitor& visitor) { return ((who ^ visitor.who) & ~has_arrived) == 0; }

  // Whether a barrier of the cluster lies in between.
  static bool has_met(const Visitor& visitor, std::uint32_t stamp, Who who) {
    return stamp < (who & has_arrived ? visitor.wait_before : visitor.last_wait);
  }

  static Order order(const View& view, std::uint32_t stamp, Who who) {
    if (stamp < view.since) return Order::settled;
    if (stamp < view.clock.cluster && who != several_blocks && view.acquired(stamp)) return Order::settled;
    if (stamp < view.clock.cluster || who == several_blocks) return Order::other_cluster;
    const Visitor& visitor = view.visitor;
    if (has_met(visitor, stamp, who)) return Order::settled;
    if (!is_of_rank(who, visitor)) return Order::other_rank;
    if (stamp < view.block.barrier || is_same(who, visitor)) return Order::settled;
    const bool synced = is_of_warp(who, visitor) && stamp < view.block.warp_barrier[visitor.warp()];
    return synced ? Order::settled : Order::other_thread;
  }

  // Of several readers, this one among them, as much as a later write of any thread needs to know.
  Who readers(const View& view) const {
    const Visitor& visitor = view.visitor;
    if (read_stamp_ < view.clock.cluster || reader_ == several_blocks) return several_blocks;
    if (has_met(visitor, read_stamp_, reader_)) return visitor.who;
    const Who arrived = (read_stamp_ < view.clock.met ? visitor.who : visitor.who | reader_) & has_arrived;
    if (!is_of_rank(reader_, visitor)) return several_ranks | arrived;
    if (read_stamp_ < view.block.barrier || is_same(reader_, visitor)) return visitor.who | arrived;
    const Who rank = (visitor.who & rank_bits) | arrived;
    if (!is_of_warp(reader_, visitor)) return several_warps | rank;
    if (read_stamp_ < view.block.warp_barrier[visitor.warp()]) return visitor.who | arrived;
    return static_cast<Who>(several_lanes | rank | visitor.warp());
  }

  std::uint32_t write_stamp_ = 0;
  std::uint32_t read_stamp_ = 0;
  std::uint32_t foreign_stamp_ = 0;  // of reads by one cluster before those
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
