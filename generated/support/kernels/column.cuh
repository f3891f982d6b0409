// The column kernel: passes over columns that stay in shared memory. Pass kFirst of a program reads
// the elements from memory, all later passes read them from shared memory.
//
// A cluster of blocks (a single one where rows are few) has a tile of columns, each block some of
// its rows. The sums of a pass are reduced over the rows of a thread, of its block and of the
// cluster, so that every thread has what follows from them when the next pass begins. A thread
// reads only the elements of a tile that it has written itself, so a tile needs no barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../cluster.cuh"
#include "../column_shapes.cuh"
#include "../fetch.cuh"
#include "../launch.cuh"
#include "column_layout.cuh"
#include "column_sums.cuh"
#include "column_tiles.cuh"
#include "elements.cuh"
#include "program.cuh"

namespace fusegen {

// One thread of the kernel.
template <class P, int kFirst, int kVec, bool kPacked>
class ColumnThread {
 public:
  using Acc = typename P::Acc;
  using Layout = ColumnLayout<P, kFirst>;
  using Vectors = VectorsOf<kVec, kPacked>;
  using Inputs = typename P::template Reads<Vectors::template Loaded>;
  template <int kPass>
  using Sums = typename P::template Sums<kPass, ColumnSumsOf<Acc, kVec>::template Of>;

  __device__ __forceinline__ ColumnThread(const P& p, int rows_per_block)
      : p_(p),
        columns_(columns_of<kVec, kPacked>(
            int64_t(blockIdx.x) * blockDim.x * kVec, p.channels, threadIdx.x, blockDim.x)),
        rows_per_block_(rows_per_block),
        first_(blockIdx.z * rows_per_block),
        last_(first_ + rows_per_block < p.rows ? first_ + rows_per_block : int(p.rows)),
        begin_{thread_index(), int64_t(first_ + threadIdx.y) * p.channels},
        step_{int(blockDim.x * blockDim.y), int64_t(blockDim.y) * p.channels},
        end_(columns_.any() ? (last_ - first_) * int(blockDim.x) : 0),
        next_(begin_) {
    if constexpr (kUsesGroups) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        // A packed vector is of one group.
        group_[v] = columns_.at(kPacked ? 0 : v) / p.group_length;
      }
    }
    tiles_.memory = shared_memory<unsigned char>();
    tiles_.elements = rows_per_block * blockDim.x * kVec;
    exchange_ = reinterpret_cast<Acc*>(tiles_.memory + tiles_.elements * Layout::kBytes);
    constexpr int kShown = most_components<P, kFirst>() * kVec;
    shared_ = exchange_ + (in_cluster() ? (gridDim.z + 1) * kShown * blockDim.x : 0);
  }

  __device__ __forceinline__ void run() {
    cluster_arrive();  // no block reads sums yet; the first exchange waits for this
    // The first rows of the pipeline.
    if constexpr (Layout::kFetched != 0) {
#pragma unroll
      for (int i = 0; i < kPipelineDepth; ++i) fetch();
    }
    const int own = last_ - first_ - threadIdx.y;  // rows from the thread's first on
    count_ = own > 0 ? Acc((own + blockDim.y - 1) / blockDim.y) : Acc(0);
    set_scalars(p_, known_);
    load_channels<kFirst, (~0u << kFirst)>(p_, columns_, columns_.any(), known_);
    derive_channels(p_, known_);
    run_passes<kFirst>();
    cluster_wait();  // other blocks may read this block's sums until here
  }

 private:
  static constexpr bool kUsesGroups = uses_groups_from<P, kFirst>();

  using Shortest =
      std::conditional_t<(Layout::kFetched & short_reads<P>()) != 0, unsigned short, unsigned>;
  static constexpr int kPipelineDepth = fields_in(Layout::kFetched) == 1
      ? kPipelineDepthFor<kPacked, Shortest>
      : kPipelineDepthFor<kPacked, Shortest, Shortest>;

  // Starts to copy the thread's next row.
  __device__ __forceinline__ void fetch() {
    if (next_.at < end_) {
      each(
          [&](auto i, auto& incoming, const auto& from) {
            constexpr int kField = decltype(i)::value;
            using E = ElementAt<std::remove_reference_t<decltype(from)>>;
            if constexpr (has_bit(Layout::kFetched, kField)) {
              auto* const slot = tiles_.template fetched<kField, E>() + next_.at;
              incoming.fetch(columns_, slot, row_at(from, next_.row));
            }
          },
          incoming_, p_.reads);
    }
    end_row();
    next_ += step_;
  }

  // Runs a pass, and all that follow it.
  template <int kPass>
  __device__ __forceinline__ void run_passes() {
    Sums<kPass> sum = {};
    if constexpr (kPass == kFirst) {
      for (Place here = begin_; here.at < end_; here += step_) {
        Inputs in;
        if constexpr (Layout::kFetched != 0) wait_for_rows<kPipelineDepth - 1>();
        each(
            [&](auto i, auto& vector, auto& incoming, const auto& from) {
              constexpr int kField = decltype(i)::value;
              using E = ElementAt<std::remove_reference_t<decltype(from)>>;
              if constexpr (has_bit(Layout::kFetched, kField)) {
                vector = incoming.take(tiles_.template fetched<kField, E>() + here.at);
              } else if constexpr (has_bit(Layout::kReads, kField)) {
                vector = load_pack(columns_, row_at(from, here.row));
              }
            },
            in, incoming_, p_.reads);
        if constexpr (Layout::kFetched != 0) fetch();
        use_row<kPass>(here, in, sum);
      }
    } else {
#pragma unroll 2
      for (Place here = begin_; here.at < end_; here += step_) {
        Inputs in;
        each(
            [&](auto i, auto& vector, const auto& from) {
              constexpr int kField = decltype(i)::value;
              using E = ElementAt<std::remove_reference_t<decltype(from)>>;
              if constexpr (has_bit(Layout::kTiles & P::kReadBy[kPass], kField)) {
                vector = tiles_.template read<kField, E>()[here.at];
              }
            },
            in, p_.reads);
        use_row<kPass>(here, in, sum);
      }
    }
    static_assert(P::kUnit[kPass] == Unit::kChannel || kPass + 1 == P::kPasses);
    if constexpr (P::kUnit[kPass] == Unit::kChannel) end_sums<kPass>(sum);
    if constexpr (kPass + 1 < P::kPasses) run_passes<kPass + 1>();
  }

  // Computes a pass for the thread's elements of a row.
  template <int kPass>
  __device__ __forceinline__ void use_row(
      const Place& here, const Inputs& in, Sums<kPass>& sum) {
    constexpr bool kStores = kPass + 1 == P::kPasses;
    constexpr unsigned kRead =
        kPass == kFirst ? Layout::kReads : Layout::kTiles & P::kReadBy[kPass];
    constexpr unsigned kCached = P::kCachedInShared[kPass];
    constexpr unsigned kCachesNow = P::kCachedInShared[kStores ? kPass : kPass + 1] & ~kCached;
    static_assert(kPass != kFirst || kCached == 0, "no pass before it keeps anything");
    Pack<Acc, kVec> cached_vector[P::Cached::kFields + 1];  // an array has some element
    typename P::Cached cached{};
    each(
        [&](auto i, auto&) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(kCached, kField)) {
            cached_vector[kField] = tiles_.template cached<kField>()[here.at];
          }
        },
        cached);

    [[maybe_unused]] const int64_t row = first_ + here.at / int(blockDim.x);
    typename P::Row row_values{};
    if constexpr (P::kRowTensorsBy[kPass] > 0) {
      p_.template row_tensors<kFirst>([&](auto uses, auto pointer, bool present, auto field) {
        if constexpr (has_bit(decltype(uses)::passes, kPass)) {
          row_values.*field = load_value<Acc>(pointer, row, present);
        }
      });
      Known<P> k{known_[0], {}, row_values, {}};
      p_.derive_row(k);
      row_values = k;
    }
    typename P::template Writes<Vectors::template Stored> out;
    typename P::Drawn drawn[kVec];
    draw(p_, columns_, here.row, drawn);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      Elements<P> x{};
      each(TakeElement<kRead>{v}, x, in);
      each(
          [&](auto i, Acc& value) {
            constexpr int kField = decltype(i)::value;
            if constexpr (has_bit(kCached, kField)) value = cached_vector[kField][v];
          },
          cached);
      Known<P>& k = known_[v];
      static_cast<typename P::Row&>(k) = row_values;
      static_cast<typename P::Drawn&>(k) = drawn[v];
      if constexpr (P::kGroupTensorsBy[kPass] > 0) {
        p_.template group_tensors<kFirst>(
            [&](auto uses, auto* pointer, bool present, auto field) {
              if constexpr (has_bit(decltype(uses)::passes, kPass)) {
                k.*field = load_value<Acc>(pointer, row * p_.groups + group_[v], present);
              }
            });
        p_.derive_group(k);
      }
      Terms<P, kPass> term;
      Results<P> y;
      p_.template element<kPass, kCached>(x, k, cached, term, y);
      each(
          [&](auto i, Acc& value) {
            constexpr int kField = decltype(i)::value;
            if constexpr (has_bit(kCachesNow, kField)) cached_vector[kField][v] = value;
          },
          cached);
      const bool is_first = here.at == begin_.at;
      each(AddElement{v, is_first}, sum, term);
      if constexpr (kStores) each(PutElement{v}, out, y);
    }
    each(
        [&](auto i, auto&) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(kCachesNow, kField)) {
            tiles_.template cached<kField>()[here.at] = cached_vector[kField];
          }
        },
        cached);
    if constexpr (kStores) {
      each(
          [&](auto i, auto& vector, const auto& to) {
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
            if (!kMayLack || to != nullptr) store_pack(columns_, row_at(to, here.row), vector);
          },
          out, p_.writes);
    }
  }

  // Reduces the sums of a pass, computes what later passes need of them, and stores results.
  template <int kPass>
  __device__ __forceinline__ void end_sums(const Sums<kPass>& sum) {
    Totals<P, kPass> total[kVec];
    reduce_column_sums<P, kPass>(
        p_, sum, count_, last_ - first_, rows_per_block_, shared_, exchange_, total);
#pragma unroll
    for (int v = 0; v < kVec; ++v) p_.template follow<kPass>(known_[v], total[v]);
    if (blockIdx.z == 0 && threadIdx.y == 0 && columns_.any()) {
      load_finish_channels<kFirst>(p_, columns_, known_);
#pragma unroll
      for (int v = 0; v < kVec; ++v) p_.template finish<kPass>(known_[v], total[v]);
      p_.template results<kPass, true>([&](auto* to, auto field) {
        Acc value[kVec];
#pragma unroll
        for (int v = 0; v < kVec; ++v) value[v] = known_[v].*field;
        if (to != nullptr) store_values(columns_, to, value);
      });
      // Not earlier: some instances would need more registers than there are.
      if (columns_.first == 0) p_.template count<kPass>();
    }
  }

  const P& p_;
  const Columns<kVec, kPacked> columns_;
  const int rows_per_block_;
  const int first_, last_;    // rows of this block
  const Place begin_, step_;  // the thread's first row, and the step from one to the next
  const int end_;
  Place next_;  // the next row to be copied
  typename P::template Reads<IncomingOf<kVec, kPacked>::template Of> incoming_;
  int64_t group_[kVec];
  ColumnTiles<P, kFirst, kVec, kPacked> tiles_;
  Acc* exchange_;  // for sums over the cluster
  Acc* shared_;    // for sums over the block
  Acc count_;      // rows of this thread
  Known<P> known_[kVec];
};

template <class P, int kFirst, int kVec, bool kPacked>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    column_kernel(const __grid_constant__ P p, int rows_per_block) {
  wait_for_earlier_kernels();
  ColumnThread<P, kFirst, kVec, kPacked>(p, rows_per_block).run();
}

}  // namespace fusegen
