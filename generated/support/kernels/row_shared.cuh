// The kernel that has rows in shared memory: one pass over memory, for rows that are too long for
// the registers of a block, in programs that read a row's elements more than once.
//
// A row belongs to a block or to those of a cluster, which have its vectors in turn. A thread
// copies its own vectors to shared memory and reads no others, so the copies need no barrier. The
// last pass that reads a vector copies that of the next row in its place. Several blocks share a
// multiprocessor: while one waits for memory or for sums, others go on.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../block_exchange.cuh"
#include "../columns.cuh"
#include "../devices.cuh"
#include "../fetch.cuh"
#include "../launch.cuh"
#include "../packs.cuh"
#include "../row_shared_shapes.cuh"
#include "column_layout.cuh"
#include "elements.cuh"
#include "program.cuh"
#include "row_passes.cuh"
#include "row_reduction.cuh"
#include "row_slots.cuh"
#include "row_totals.cuh"

namespace fusegen {

// Reduces values over the threads that share a row: first those of a block. `shared` is as in
// reduce_over_segment().
template <typename Acc, bool kClusters>
struct RowSharedReducer {
  Acc* shared;
  BlockExchange<Acc, kSegmentSums>& exchange;

  template <typename Op, typename T, typename... More>
  __device__ __forceinline__ void reduce(T& first, More&... more) const {
    reduce_over_block<Op>(next_array<T>(shared, 0), first, more...);
    if constexpr (kClusters) {
      if (gridDim.z > 1) exchange.template reduce<Op>(first, more...);
    }
  }
};

// The values of shared memory that this takes.
constexpr int kRowSharedExchange = 32 * kSegmentSums + block_exchange_size(kSegmentSums);

// One thread of the kernel.
template <class P, int kFirst, int kVec, bool kPacked>
class RowSharedThread {
 public:
  using Acc = typename P::Acc;
  using Passes = RowPasses<P, kFirst>;
  using ColumnsOf = SegmentColumns<kVec, kPacked>;
  static constexpr bool kClusters = kSomeHaveClusters;

  __device__ __forceinline__ RowSharedThread(const P& p, const RowSharedGrid& g)
      : p_(p),
        g_(g),
        begin_(int64_t(blockIdx.x) * p.channels),
        shared_(shared_memory<Acc>()),
        slots_{next_array<unsigned char>(shared_, kRowSharedExchange), g} {
    const int length = int(p.channels);
    if constexpr (kPacked) {
      vectors_ = length / kVec;
    } else {
      before_ = int(begin_ % kVec);
      vectors_ = (before_ + length + kVec - 1) / kVec;
      if (!P::kHasParts && g.vector_end > 0) {
        first_whole_ = before_ > 0 ? 1 : 0;
        whole_ = (before_ + length) / kVec - first_whole_;
      }
    }
  }

  __device__ __forceinline__ void run() {
    int64_t row = blockIdx.x;
    if (row < p_.rows) {
      each_vector([&](const auto& own, int j) { fetch(own, j, begin_); });
    }
    end_row();
    each_vector([&](const auto& own, int j) { load_constants_of(own, j); });
    if constexpr (kClusters) {
      if (gridDim.z > 1) exchange_.begin(next_array<Acc>(shared_, 32 * kSegmentSums));
    }
    const typename P::Scalars scalars = p_.scalars();
    for (; row < p_.rows; row += gridDim.x, begin_ += int64_t(gridDim.x) * p_.channels) {
      Known<P> known{scalars, {}, {}, {}};
      p_.template row_tensors<kFirst>([&](auto, auto pointer, bool present, auto field) {
        known.*field = load_value<Acc>(pointer, row, present);
      });
      p_.derive_row(known);
      wait_for_rows<0>();
      each_pass<kFirst>(typename Passes::Steps(), [&](auto pass) {
        run_pass<decltype(pass)::value>(row, known);
      });
    }
  }

 private:
  // The last pass that reads elements.
  template <int kPass>
  static constexpr int last_reading() {
    if constexpr (kPass == kFirst || P::kReadBy[kPass] != 0) {
      return kPass;
    } else {
      return last_reading<kPass - 1>();
    }
  }
  static constexpr int kLastReading = last_reading<Passes::kLast>();

  // Calls f(columns, j) for each vector j of the thread: their columns are the same in all rows of
  // the block. All but the first and the last vector of a row are whole: they need no masks.
  template <typename F>
  __device__ __forceinline__ void each_vector(const F& f) const {
    const int step = int(gridDim.z * blockDim.x);
    int vector = int(blockIdx.z * blockDim.x + threadIdx.x);
#pragma unroll 2
    for (int j = 0; j < g_.vectors; ++j, vector += step) {
      if (vector >= vectors_) break;
      const int64_t first = int64_t(vector) * kVec - before_;
      const Columns<kVec, true> whole{first, 1, kVec};
      if constexpr (kPacked) {
        f(whole, j);
      } else if (vector - first_whole_ >= 0 && vector - first_whole_ < whole_) {
        f(whole, j);
      } else {
        f(masked_vector<kVec>(first, 0, p_.channels), j);
      }
    }
  }

  template <typename Own>
  __device__ __forceinline__ void load_constants_of(const Own& own, int j) const {
    slots_.each_constant(p_, j, [&](auto, auto* constants, auto* from, bool present, auto) {
      using E = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
      if constexpr (!std::is_same_v<E, ChannelNumber>) {
        if (present) *constants = load_constants(masked(own), from);
      }
    });
  }

  // The same columns of tensors whose rows need not begin where those of others do in a vector.
  static __device__ __forceinline__ ColumnsOf masked(const ColumnsOf& own) { return own; }
  template <int N>
  static __device__ __forceinline__ MaskedVector<N> masked(const Columns<N, true>& own) {
    return {own.first, 0, (1u << N) - 1u};
  }

  // Starts to copy vector j of the row that begins at `begin`.
  template <typename Own>
  __device__ __forceinline__ void fetch(const Own& own, int j, int64_t begin) const {
    each(
        [&](auto n, const auto& from) {
          constexpr int kField = decltype(n)::value;
          using E = ElementAt<std::remove_reference_t<decltype(from)>>;
          if constexpr (has_bit(Passes::kReads, kField)) {
            auto* const slot = slots_.template slot<kField, E>(j);
            if constexpr (std::is_pointer_v<std::decay_t<decltype(from)>>) {
              start_copy(own, slot, from, begin, g_.vector_end);
            } else {
              start_copy(masked(own), slot, from, begin, g_.vector_end);
            }
          }
        },
        p_.reads);
  }

  // One pass over the row, whose elements are in shared memory, and what follows from its sums.
  template <int kPass>
  __device__ __forceinline__ void run_pass(int64_t row, Known<P>& known) {
    constexpr bool kReduces = Passes::template kReduces<kPass>;
    constexpr bool kStores = kPass == Passes::kLast && Results<P>::kFields > 0;
    if constexpr (!kReduces && !kStores) return;
    const bool refills = kPass == kLastReading && row + gridDim.x < p_.rows;
    Running<P, kPass> sums = {};
    int seen = 0;  // elements of this thread
    each_vector([&](const auto& own, int j) {
      take<kPass>(row, own, j, known, sums, seen);
      seen += own.size();
      if (refills) fetch(own, j, begin_ + int64_t(gridDim.x) * p_.channels);
    });
    if constexpr (kPass == kLastReading) end_row();
    if constexpr (kReduces) {
      Totals<P, kPass> total;
      const RowSharedReducer<Acc, kClusters> reducer{shared_, exchange_};
      sums_over_segment<count_of<P, kPass, Sum>()>(
          reducer, sums, Acc(seen), Acc(p_.channels), total);
      p_.template follow<kPass>(known, total);
      if (threadIdx.x == 0 && blockIdx.z == 0) {
        Known<P> stored = known;
        p_.template finish<kPass>(stored, total);
        p_.template results<kPass, true>([&](auto* to, auto field) {
          if (to != nullptr) store_value(to + row, stored.*field);
        });
      }
    }
  }

  // What a pass does with vector j.
  template <int kPass, typename Own>
  __device__ __forceinline__ void take(
      int64_t row, const Own& own, int j, const Known<P>& known, Running<P, kPass>& sums,
      int seen) const {
    typename P::template Reads<VectorsOf<kVec>::template Loaded> in;
    each(
        [&](auto n, auto& vector, const auto& from) {
          constexpr int kField = decltype(n)::value;
          using E = ElementAt<std::remove_reference_t<decltype(from)>>;
          if constexpr (has_bit(P::kReadBy[kPass], kField)) {
            vector = *slots_.template slot<kField, E>(j);
          }
        },
        in, p_.reads);
    typename P::Channel channel[kVec] = {};
    const auto widen = [&](auto uses, auto* constants, auto* from, bool present, auto field) {
      using E = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
      if constexpr (has_bit(decltype(uses)::passes, kPass)) {
        Acc value[kVec];
        if constexpr (std::is_same_v<E, ChannelNumber>) {
          // One conversion for the vector: they take longer than additions, which are exact here.
          const Acc first = Acc(int(own.first));
#pragma unroll
          for (int v = 0; v < kVec; ++v) value[v] = first + Acc(v);
        } else {
          Loaded<E, kVec> loaded = {};
          if (present) loaded = *constants;  // as a whole, not byte by byte
          widen_values(loaded, present, value);
        }
#pragma unroll
        for (int v = 0; v < kVec; ++v) channel[v].*field = value[v];
      }
    };
    slots_.each_constant(p_, j, widen);
    typename P::Drawn drawn[kVec];
    draw(p_, own, begin_, drawn);
    typename P::template Sums<kPass, RowReductionTerms<Acc, kVec>::template Of> terms;
    typename P::template Writes<VectorsOf<kVec>::template Stored> out;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      Known<P> k = known;
      static_cast<typename P::Channel&>(k) = channel[v];
      static_cast<typename P::Drawn&>(k) = drawn[v];
      p_.derive_channel(k);
      if constexpr (P::kGroupTensorsBy[kPass] > 0) {
        const int64_t at = row * p_.groups + own.at(kPacked ? 0 : v) / p_.group_length;
        p_.template group_tensors<kFirst>([&](auto uses, auto* from, bool present, auto field) {
          if constexpr (has_bit(decltype(uses)::passes, kPass)) {
            k.*field = load_value<Acc>(from, at, present);
          }
        });
        p_.derive_group(k);
      }
      Elements<P> x;
      each(TakeElement<P::kReadBy[kPass]>{v}, x, in);
      typename P::Cached cached;
      Terms<P, kPass> term;
      Results<P> y;
      p_.template element<kPass, 0u>(x, k, cached, term, y);
      each([&](auto, auto& all, Acc one) { all[v] = one; }, terms, term);
      if constexpr (kPass == Passes::kLast) each(PutElement{v}, out, y);
    }
    each(
        [&](auto, auto& total, const auto& all) {
          if constexpr (std::is_same_v<decltype(total), ShiftedSums<Acc>&>) {
            if (seen == 0) total.shift = one_of(own, all);
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
              if (own.has(v)) add_value(total, all[v]);
            }
          } else {
            add_columns(total, own, all);
          }
        },
        sums, terms);
    if constexpr (kPass == Passes::kLast) {
      each(
          [&](auto n, const auto& pack, const auto& to) {
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(n)::value);
            if (!kMayLack || to != nullptr) store_pack(own, to, begin_, g_.vector_end, pack);
          },
          out, p_.writes);
    }
  }

  const P& p_;
  const RowSharedGrid& g_;
  int64_t begin_;  // where the row begins
  // Elements of the row's first vector in front of it, the vectors that it overlaps with, the first
  // of those that are whole and may be moved as such, and how many these are.
  int before_ = 0, vectors_, first_whole_ = 0, whole_ = 0;
  Acc* const shared_;
  const RowSlots<P, kFirst, kVec> slots_;
  BlockExchange<Acc, kSegmentSums> exchange_;
};

template <class P, int kFirst, int kVec, bool kPacked>
__global__ void __launch_bounds__(kRowSharedThreads, 1) row_shared_kernel(
    const __grid_constant__ P p, const __grid_constant__ RowSharedGrid g) {
  wait_for_earlier_kernels();
  RowSharedThread<P, kFirst, kVec, kPacked>(p, g).run();
}

}  // namespace fusegen
