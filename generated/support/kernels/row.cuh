// The row kernel: one pass over memory, for programs that reduce rows, or groups of a row's
// channels. Such a segment stays in registers from its first sum to its results.
//
// A segment belongs to some lanes of a warp, to a block, or to a cluster. A thread has kItems
// vectors of it, at the same columns in each iteration; from one iteration to the next the block
// moves on to other rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../columns.cuh"
#include "../exchange.cuh"
#include "../launch.cuh"
#include "../packs.cuh"
#include "../row_work.cuh"
#include "../thread_positions.cuh"
#include "../unaligned.cuh"
#include "elements.cuh"
#include "program.cuh"
#include "row_channels.cuh"
#include "row_passes.cuh"
#include "row_totals.cuh"

namespace fusegen {

// The rows from `begin` to `end` that a block has, as number `part` of the blocks that share them.
// It leaves partial results number `slot`.
template <class P, int kFirst, int kVec, bool kPacked, int kItems, bool kFullBlock, bool kCluster>
__device__ __forceinline__ void row_block(
    const P& p, const RowGrid& g, unsigned part, int64_t slot, int64_t begin, int64_t end) {
  using T = typename P::T;
  using Acc = typename P::Acc;
  using Passes = RowPasses<P, kFirst>;
  constexpr bool kOfRows = Passes::kOfRows;
  constexpr int kColumnSums = Passes::kColumnSums;
  constexpr bool kShort = !kFullBlock && !kCluster;
  constexpr int kWarps = kRowWarps<kItems, kFullBlock>;  // per block, at most
  constexpr bool kUnaligned = kHasUnaligned<T, kVec, kPacked, kItems, (kColumnSums > 0)>;
  // In float32, column sums need the register that would keep the lane.
  constexpr bool kKeepsLane = kColumnSums == 0 || sizeof(T) < 4;
  const int64_t size = kSumsSamples<P> ? end * p.channels : g.size;  // elements up to the end
  const int64_t groups = kOfRows ? 1 : p.groups;  // segments of a row
  const int64_t length = kOfRows ? p.channels : p.group_length;
  const ThreadPosition position = g.position<kShort>(threadIdx.x);
  // A thread that is not active has no columns, like one after the last group.
  const int64_t segment =
      position.active ? int64_t(blockIdx.x) * g.segments_per_block + position.segment : groups;
  const int lane = position.lane;
  Acc* const shared = shared_memory<Acc>();
  // With column sums all rows of a block begin at the same place in a vector, so that its threads
  // have sums of the same columns: row_stride rows are between them. Unaligned vectors begin
  // anywhere.
  const unsigned row_stride = kColumnSums == 0 || kPacked || kUnaligned ? 1 : g.period;
  int64_t base = int64_t(part / row_stride) * g.rows_per_iteration * row_stride +
      part % row_stride + begin;
  const int64_t first = base + position.row * row_stride;
  RowColumns<kVec, kPacked, kUnaligned> columns[kItems];
  const int rank = kCluster ? blockIdx.z : 0;  // among the blocks that share the segment
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int64_t segment_end = segment < groups ? (segment + 1) * length : 0;
    columns[i] = row_columns<kVec, kPacked, kUnaligned>(
        first * p.channels, segment * length, segment_end,
        int64_t((rank * kItems + i) * g.lanes + lane) * kVec);
  }
  RowCounts<Acc> counts;
  if constexpr (Passes::kHasMoments) {
    counts = row_counts(length, g.lanes, columns, shared + 32 * Passes::kExchanged);
  }
  const typename P::Scalars scalars = p.scalars();

  // The loads of the next row are in flight while this one is used, with the values of the row and
  // of its group. Where segments are rows, values of groups are loaded for each element.
  typename P::template Reads<RowLoadsOf<kVec, kUnaligned>::template Of> next[kItems];
  typename P::Row next_row;
  typename P::Group next_group;
  const auto load_row = [&](int64_t at, int64_t item, int64_t row) {
    const bool exists = at < size && segment < groups;
    p.template row_tensors<kFirst>([&](auto, auto from, bool present, auto field) {
      const auto value = from + (kOfRows ? item : row);
      next_row.*field = exists && present ? Acc(widen(read(value))) : Acc(0);
    });
    if constexpr (!kOfRows) {
      p.template group_tensors<kFirst>([&](auto, auto* from, bool present, auto field) {
        next_group.*field = exists && present ? Acc(widen(read(from + item))) : Acc(0);
      });
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      next[i] = {};
      if (at >= size || !columns[i].any()) continue;
      each(
          [&](auto n, auto& vector, const auto& from) {
            if constexpr (has_bit(Passes::kReads, decltype(n)::value)) {
              vector = issue_load(columns[i], from, at, g.size, g.vector_end);
            }
          },
          next[i], p.reads);
    }
  };
  // Where the thread's row begins, and the numbers of its segment and of the row. All are added to
  // from one iteration to the next: that takes no multiplication. Unless vectors are unaligned, all
  // iterations begin at the same place in a vector.
  int64_t at = first * p.channels;
  int64_t item = first * groups + segment;
  int64_t row = first;
  load_row(at, item, row);  // before any wait
  Exchange<Acc, (Passes::kExchanged > 0 ? Passes::kExchanged : 1)> exchange;
  if constexpr (kCluster) exchange.begin(shared);

  constexpr bool kInShared = Passes::channels_in_shared(kFullBlock, kItems * kVec);
  RowChannels<P, kFirst, kVec, kItems, kInShared> channels;
  channels.memory = next_array<unsigned char>(shared, Passes::template kExchange<kVec>);
  channels.load(p, columns);
  RowColumnSums<Acc, (kColumnSums > 0 ? kColumnSums : 1), kVec, kItems, kFullBlock> sums;
  if constexpr (kColumnSums > 0 && kFullBlock) {
    sums.memory = reinterpret_cast<Loaded<Acc, kVec>*>(channels.end(p));
    sums.clear();
  }

  // Every thread takes part in every iteration, with or without a row: the sums need all lanes.
  for (; base < end; base += g.step, at += g.at_step, item += g.item_step, row += g.step) {
    const bool valid = at < size;
    typename P::template Reads<VectorsOf<kVec>::template Loaded> in[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      each(
          [&](auto n, auto& vector, const auto& from, const auto& issued) {
            if constexpr (has_bit(Passes::kReads, decltype(n)::value)) {
              vector = complete_load(columns[i], from, at, issued);
            }
          },
          in[i], p.reads, next[i]);
    }
    Known<P> known{scalars, {}, next_row, next_group};
    // In a branch: else the compiler may sink the loads to their uses, which is too late.
    if ((kColumnSums > 0 && !kFullBlock) || base + g.step < end) {
      load_row(at + g.at_step, item + g.item_step, row + g.step);
    }
    p.derive_row(known);
    if constexpr (!kOfRows) p.derive_group(known);
    typename P::Cached cached[kItems][kVec];

    each_pass<kFirst>(typename Passes::Steps(), [&](auto pass) {
      constexpr int kPass = decltype(pass)::value;
      constexpr unsigned kCached = kPass == kFirst ? 0u : P::kCachedInRegisters[kPass];
      constexpr bool kReduces = Passes::template kReduces<kPass>;
      constexpr bool kIsLast = kPass == Passes::kLast;
      constexpr bool kLoadsGroups = kOfRows && P::kGroupTensorsBy[kPass] > 0;
      Totals<P, kPass> total;
      each([](auto, auto& field) { field = {}; }, total);
      // The terms of the sums; moments need theirs a second time. One more than there are fields,
      // as an array has some element.
      Acc terms[Terms<P, kPass>::kFields + 1][kItems][kVec];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const bool active = valid && columns[i].any();
        channels.template take<kPass>(p, i);
        if constexpr (kIsLast && kColumnSums > 0) sums.take(i);
        typename P::template Writes<VectorsOf<kVec>::template Stored> out;
        typename P::Drawn drawn[kVec];
        draw(p, columns[i], at, drawn);
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          Known<P> k = known;
          static_cast<typename P::Drawn&>(k) = drawn[v];
          static_cast<typename P::Channel&>(k) = channels.value[kInShared ? 0 : i][v];
          p.derive_channel(k);
          if constexpr (kLoadsGroups) {
            const int64_t inner = columns[i].at(kPacked ? 0 : v) / p.group_length;
            const int64_t place = item * p.groups + inner;
            p.template group_tensors<kFirst>([&](auto uses, auto* from, bool present, auto field) {
              if constexpr (has_bit(decltype(uses)::passes, kPass)) {
                k.*field = active && present ? Acc(widen(read(from + place))) : Acc(0);
              }
            });
            p.derive_group(k);
          }
          Elements<P> x;
          each(TakeElement<P::kReadBy[kPass]>{v}, x, in[i]);
          Terms<P, kPass> term;
          Results<P> y;
          p.template element<kPass, kCached>(x, k, cached[i][v], term, y);
          each(
              [&](auto n, Acc value) {
                constexpr int kField = decltype(n)::value;
                if constexpr (kReduces) {
                  terms[kField][i][v] = value;
                } else {
                  if (active) sums.value[kField][kFullBlock ? 0 : i][v] += value;
                }
              },
              term);
          if constexpr (kIsLast) each(PutElement{v}, out, y);
        }
        if constexpr (kReduces) {
          each(
              [&](auto n, auto& field) {
                const auto& values = terms[decltype(n)::value][i];
                if (active) add_columns(field, columns[i], values);
              },
              total);
        }
        if constexpr (kIsLast) {
          if constexpr (kColumnSums > 0) sums.put(i);
          each(
              [&](auto n, const auto& pack, const auto& to) {
                constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(n)::value);
                if (active && (!kMayLack || to != nullptr)) {
                  store_pack(columns[i], to, at, g.vector_end, pack);
                }
              },
              out, p.writes);
        }
      }
      if constexpr (kReduces) {
        sum_together<Passes::template kMoments<kPass>, Passes::template kPlainSums<kPass>, Acc>(
            total,
            [&](auto&... means) { sum_in_lanes<kKeepsLane>(g.lanes, lane, means...); },
            [&](auto&... plain) {
              if constexpr (kCluster) {
                exchange.sum(plain...);
              } else {
                sum_over_lanes<kWarps, kKeepsLane>(g.lanes, lane, shared, plain...);
              }
            });
        each(
            [&](auto n, auto& field) {
              using Field = std::decay_t<decltype(field)>;
              if constexpr (kCombinedValues<Field> > 0) {
                reduce_over_lanes<Combine, kWarps, kKeepsLane>(
                    g.lanes, lane, next_array<Field>(shared, 0), field);
              } else if constexpr (std::is_same_v<decltype(field), Moments<Acc>&>) {
                const auto& values = terms[decltype(n)::value];
                moments_in_registers<kWarps, kKeepsLane>(
                    field, values, columns, valid, g.lanes, lane, shared, counts);
              }
            },
            total);
        p.template follow<kPass>(known, total);
        if (lane == 0 && rank == 0 && valid && segment < groups) {
          Known<P> stored = known;
          p.template finish<kPass>(stored, total);
          p.template results<kPass, true>([&](auto* to, auto field) {
            if (to != nullptr) store_value(to + item, stored.*field);
          });
        }
      }
    });
  }

  if constexpr (kColumnSums > 0) {
    // The position is computed again, from another expression, so that it takes no registers of the
    // loop.
    const ThreadPosition again = g.position<kShort>(thread_index());
    Acc* const partials = p.partials + slot * kColumnSums * p.channels;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      sums.store(i, columns[i], again, g.lanes * g.segments_per_block,
                 kShort ? g.rows_per_iteration : 1, shared, partials, p.channels);
    }
  }
}

// kFullBlock: for blocks of up to 1024 threads, which keep values of their columns in shared
// memory. kCluster: the blocks of a cluster share a segment.
template <class P, int kFirst, int kVec, bool kPacked, int kItems, bool kFullBlock = false,
          bool kCluster = false>
__global__ void __launch_bounds__(
    row_threads(kItems, kVec, RowPasses<P, kFirst>::kBlocks, kFullBlock),
    row_blocks(kItems, kVec, RowPasses<P, kFirst>::kBlocks))
    row_kernel(const __grid_constant__ P p, const __grid_constant__ RowGrid g) {
  wait_for_earlier_kernels();
  if constexpr (kSumsSamples<P>) {
    const int64_t rows = p.sample_rows;
    const unsigned shares = unsigned(g.sample_blocks), part = blockIdx.y % shares;
    for (int64_t sample = blockIdx.y / shares; sample < p.samples; sample += gridDim.y / shares) {
      const int64_t begin = sample * rows;
      row_block<P, kFirst, kVec, kPacked, kItems, kFullBlock, kCluster>(
          p, g, part, sample * shares + part, begin, begin + rows);
    }
  } else {
    row_block<P, kFirst, kVec, kPacked, kItems, kFullBlock, kCluster>(
        p, g, blockIdx.y, blockIdx.y, 0, p.rows);
  }
}

}  // namespace fusegen
