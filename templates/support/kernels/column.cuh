// Passes over columns that stay in shared memory: the elements are read from memory once, by pass
// kFirst of a program, and by all later passes from shared memory.
//
// A cluster of blocks (a single one where rows are few) has a tile of columns, each block some of
// their rows. The sums of a pass are taken over the rows of a thread, of its block and of the
// cluster, so that every thread has what follows from them when the next pass begins. A thread
// reads no element of a tile but those that it has written, so a tile needs no barrier.
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
#include "elements.cuh"
#include "program.cuh"

namespace fusegen {

// A value of a row or a group.
template <typename Acc, typename E>
__device__ __forceinline__ Acc load_value(E* from, int64_t at, bool present) {
  return present ? Acc(widen(read(from + at))) : Acc(0);
}

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
        // Vectors of neighbours lie in one group.
        group_[v] = columns_.at(kPacked ? 0 : v) / p.group_length;
      }
    }
    tiles_ = shared_memory<unsigned char>();
    tile_elements_ = rows_per_block * blockDim.x * kVec;
    exchange_ = reinterpret_cast<Acc*>(tiles_ + tile_elements_ * Layout::kBytes);
    constexpr int kShown = most_components<P, kFirst>() * kVec;
    shared_ = exchange_ + (in_cluster() ? (gridDim.z + 1) * kShown * blockDim.x : 0);
  }

  __device__ __forceinline__ void run() {
    cluster_arrive();  // nobody reads this block's sums yet
    // Rows are on their way for some time before they are used.
    if constexpr (Layout::kFetched != 0) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) fetch();
    }
    const int own = last_ - first_ - threadIdx.y;  // rows from the thread's first on
    count_ = own > 0 ? Acc((own + blockDim.y - 1) / blockDim.y) : Acc(0);
    set_scalars(p_, known_);
    load_channels<kFirst, (~0u << kFirst)>(p_, columns_, columns_.any(), known_);
    derive_channels(p_, known_);
    run_passes<kFirst>();
    cluster_wait();  // others may read this block's sums until here
  }

 private:
  static constexpr bool kUsesGroups = uses_groups_from<P, kFirst>();

  // Rows that are on their way at a time.
  using Shortest =
      std::conditional_t<(Layout::kFetched & short_reads<P>()) != 0, unsigned short, unsigned>;
  static constexpr int kAhead = fields_in(Layout::kFetched) == 1
      ? kRowsAhead<kPacked, Shortest>
      : kRowsAhead<kPacked, Shortest, Shortest>;

  // Tiles, by a field of Reads or of Kept, with a vector of a thread each.
  template <int kField, typename E>
  __device__ __forceinline__ Loaded<E, kVec, kPacked>* read_tile() const {
    constexpr int kBegin = Layout::begin_of_read(kField);
    return reinterpret_cast<Loaded<E, kVec, kPacked>*>(tiles_ + tile_elements_ * kBegin);
  }
  template <int kField>
  __device__ __forceinline__ Pack<Acc, kVec>* kept_tile() const {
    constexpr int kBegin = Layout::begin_of_kept(kField);
    return reinterpret_cast<Pack<Acc, kVec>*>(tiles_ + tile_elements_ * kBegin);
  }
  // The tile that a field of Reads is copied to.
  template <int kField, typename E>
  __device__ __forceinline__ auto* fetched_tile() const {
    if constexpr (has_bit(Layout::kTiles, kField)) {
      return read_tile<kField, E>();
    } else {
      return kept_tile<Layout::kept_for(kField)>();
    }
  }

  // Starts to copy the thread's next row.
  __device__ __forceinline__ void fetch() {
    if (next_.at < end_) {
      each(
          [&](auto i, auto& incoming, auto* from) {
            constexpr int kField = decltype(i)::value;
            using E = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
            if constexpr (has_bit(Layout::kFetched, kField)) {
              incoming.fetch(columns_, fetched_tile<kField, E>() + next_.at, from + next_.row);
            }
          },
          incoming_, p_.reads);
    }
    end_row();
    next_ += step_;
  }

  // One pass, and all that come after it.
  template <int kPass>
  __device__ __forceinline__ void run_passes() {
    Sums<kPass> sum = {};
    if constexpr (kPass == kFirst) {
      for (Place here = begin_; here.at < end_; here += step_) {
        Inputs in;
        if constexpr (Layout::kFetched != 0) wait_for_rows<kAhead - 1>();
        each(
            [&](auto i, auto& vector, auto& incoming, auto* from) {
              constexpr int kField = decltype(i)::value;
              using E = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
              if constexpr (has_bit(Layout::kFetched, kField)) {
                vector = incoming.take(fetched_tile<kField, E>() + here.at);
              } else if constexpr (has_bit(Layout::kReads, kField)) {
                vector = load_pack(columns_, from + here.row);
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
            [&](auto i, auto& vector, auto* from) {
              constexpr int kField = decltype(i)::value;
              using E = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
              if constexpr (has_bit(Layout::kTiles & P::kReadBy[kPass], kField)) {
                vector = read_tile<kField, E>()[here.at];
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

  // What a pass does with the thread's elements of a row.
  template <int kPass>
  __device__ __forceinline__ void use_row(
      const Place& here, const Inputs& in, Sums<kPass>& sum) {
    constexpr bool kStores = kPass + 1 == P::kPasses;
    constexpr unsigned kRead =
        kPass == kFirst ? Layout::kReads : Layout::kTiles & P::kReadBy[kPass];
    constexpr unsigned kKept = P::kKeptInShared[kPass];
    constexpr unsigned kKeepsNow = P::kKeptInShared[kStores ? kPass : kPass + 1] & ~kKept;
    static_assert(kPass != kFirst || kKept == 0, "no pass before it keeps anything");
    Pack<Acc, kVec> kept_vector[P::Kept::kFields + 1];  // an array has some
    typename P::Kept kept{};
    each(
        [&](auto i, auto&) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(kKept, kField)) kept_vector[kField] = kept_tile<kField>()[here.at];
        },
        kept);

    [[maybe_unused]] const int64_t row = first_ + here.at / int(blockDim.x);
    typename P::Row row_values{};
    if constexpr (P::kRowTensorsBy[kPass] > 0) {
      p_.template row_tensors<kFirst>([&](auto uses, auto* pointer, bool present, auto field) {
        if constexpr (has_bit(decltype(uses)::passes, kPass)) {
          row_values.*field = load_value<Acc>(pointer, row, present);
        }
      });
      Known<P> k{known_[0], {}, row_values, {}};
      p_.derive_row(k);
      row_values = k;
    }
    typename P::template Writes<Vectors::template Stored> out;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      Elements<P> x{};
      each(TakeElement<kRead>{v}, x, in);
      each(
          [&](auto i, Acc& value) {
            constexpr int kField = decltype(i)::value;
            if constexpr (has_bit(kKept, kField)) value = kept_vector[kField][v];
          },
          kept);
      Known<P>& k = known_[v];
      static_cast<typename P::Row&>(k) = row_values;
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
      p_.template element<kPass, kKept>(x, k, kept, term, y);
      each(
          [&](auto i, Acc& value) {
            constexpr int kField = decltype(i)::value;
            if constexpr (has_bit(kKeepsNow, kField)) kept_vector[kField][v] = value;
          },
          kept);
      const bool is_first = here.at == begin_.at;
      each(AddElement{v, is_first}, sum, term);
      if constexpr (kStores) each(PutElement{v}, out, y);
    }
    each(
        [&](auto i, auto&) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(kKeepsNow, kField)) {
            kept_tile<kField>()[here.at] = kept_vector[kField];
          }
        },
        kept);
    if constexpr (kStores) {
      each(
          [&](auto i, auto& vector, auto* to) {
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
            if (!kMayLack || to != nullptr) store_pack(columns_, to + here.row, vector);
          },
          out, p_.writes);
    }
  }

  template <int kArrays, std::size_t... kIndices>
  __device__ __forceinline__ void add_over_cluster(
      Acc (&sums)[kArrays][kVec], std::index_sequence<kIndices...>) {
    sum_over_cluster<kVec>(exchange_, sums[kIndices]...);
  }

  // Brings the sums of a pass together, and makes of them what later passes need or what is stored.
  template <int kPass>
  __device__ __forceinline__ void end_sums(const Sums<kPass>& sum) {
    constexpr unsigned kMomentFields = moments_of_pass<P, kPass>();
    constexpr int kFields = P::template Sums<kPass, TypeOf>::kFields;
    constexpr int kMoments = fields_in(kMomentFields);
    constexpr int kSums = kFields - kMoments;
    Moments<Acc> moments[kMoments + 1][kVec];
    Acc sums[kSums + 1][kVec];
    each(
        [&](auto i, auto& running) {
          constexpr int kField = decltype(i)::value;
          constexpr int kBefore = fields_in(below(kMomentFields, kField));
          constexpr int kSum = kField - kBefore;
#pragma unroll
          for (int v = 0; v < kVec; ++v) {
            if constexpr (has_bit(kMomentFields, kField)) {
              moments[kBefore][v] = moments_of(running[v], count_);
            } else {
              sums[kSum][v] = running[v];
            }
          }
        },
        sum);
    const auto counted = [count = count_](int) { return count; };
    const auto all_rows = [rows = last_ - first_](int) { return Acc(rows); };
#pragma unroll
    for (int i = 0; i < kMoments; ++i) {
      moments_over_y<kVec>(shared_, moments[i], counted, all_rows);
      moments_over_cluster<kVec>(exchange_, moments[i], rows_per_block_, int(p_.rows));
    }
#pragma unroll
    for (int i = 0; i + 1 < kSums; i += 2) sum_over_y<kVec>(shared_, sums[i], sums[i + 1]);
    if constexpr (kSums % 2 == 1) sum_over_y<kVec>(shared_, sums[kSums - 1]);
    if constexpr (kSums > 0) add_over_cluster(sums, std::make_index_sequence<kSums>());

    Totals<P, kPass> total[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      each(
          [&](auto i, auto& value) {
            constexpr int kField = decltype(i)::value;
            constexpr int kBefore = fields_in(below(kMomentFields, kField));
            constexpr int kSum = kField - kBefore;
            if constexpr (has_bit(kMomentFields, kField)) {
              value = moments[kBefore][v];
            } else {
              value = sums[kSum][v];
            }
          },
          total[v]);
      p_.template follow<kPass>(known_[v], total[v]);
    }
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
      // Any earlier, some instances would need more registers than there are.
      if (columns_.first == 0) p_.template count<kPass>();
    }
  }

  const P& p_;
  const Columns<kVec, kPacked> columns_;
  const int rows_per_block_;
  const int first_, last_;    // rows of this block
  const Place begin_, step_;  // the thread's first row, and from one to the next
  const int end_;
  Place next_;  // the row that is copied next
  typename P::template Reads<IncomingOf<kVec, kPacked>::template Of> incoming_;
  int64_t group_[kVec];
  unsigned char* tiles_;
  int tile_elements_;
  Acc* exchange_;  // what the blocks of a cluster show each other
  Acc* shared_;    // what the threads of the block do
  Acc count_;      // rows of this thread
  Known<P> known_[kVec];
};

template <class P, int kFirst, int kVec, bool kPacked>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    column_kernel(const __grid_constant__ P p, int rows_per_block) {
  wait_for_earlier_kernels();
  ColumnThread<P, kFirst, kVec, kPacked>(p, rows_per_block).run();
}

// Columns of a thread, where a row that begins at a multiple of a vector has kVec of them.
template <int kVec, bool kPacked>
constexpr int kColumnsOfThread = kPacked ? kVec : kStridedColumns;

// The tile for these sizes; none fits where the two-pass or the L2-resident schedule is faster.
template <int kFirst, int kVec, bool kPacked, class P>
Column column_tile(const P& p, const Shapes& shapes) {
  constexpr ColumnWork kWork = column_work<P, kFirst>();
  constexpr Target kTarget = P::kTarget;
  return column_shape(
      shapes, p.rows, p.channels, kColumnsOfThread<kVec, kPacked>, kPacked, kWork,
      kTarget.shared_bytes, kTarget.l2_bytes, kTarget.most_cluster, kTarget.multiprocessors);
}

template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_column(const P& p, const Column& tile, cudaStream_t stream) {
  return launch(
      column_kernel<P, kFirst, kColumnsOfThread<kVec, kPacked>, kPacked>, tile.grid, tile.block,
      tile.shared_bytes, stream, p, tile.rows_per_block);
}

}  // namespace fusegen
