// The L2-resident kernel: two passes over columns that stay in the L2 in between. Pass 0 sums them,
// pass 1 stores results.
//
// A tile has as many columns as fill a line of the L2. A slice is kL2Rows rows of a tile. Blocks
// take slices in the order of their indices, in steps. A step sums all slices of one tile and
// stores the results of the tile `lag` before it, so that what is read a second time is still in
// the L2. In between, some blocks reduce the partial results of the slices to what the results
// need. Each tile has a counter of the parts that are done, for which other blocks wait. A block
// waits for blocks of lower indices only, which have started by then.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../l2_shapes.cuh"
#include "../l2_steps.cuh"
#include "column_layout.cuh"
#include "elements.cuh"
#include "final_reduction.cuh"
#include "l2_sums.cuh"
#include "program.cuh"

namespace fusegen {

// Rows that a thread loads before it uses the first: as many as there are registers for beside the
// values of its columns.
template <class P, int kPass>
__host__ __device__ constexpr int l2_rows_together() {
  constexpr int kReads = fields_in(P::kReadBy[kPass]);
  constexpr int kMost = 7;  // values of each column that fit 64 registers beside the rest
  using Sums = typename P::template Sums<kPass, TypeOf>;
  // Moments are three values while elements are added.
  const int values = P::kChannelValuesBy[kPass] + 2 * Sums::kComponents - Sums::kFields;
  if (P::kDraws > 0) return 2;  // what is drawn of several rows at a time takes many more
  if (kReads == 1) return 8;
  return kReads == 2 && values <= kMost ? 4 : 2;
}

// Resident blocks per multiprocessor, at least: one more for elements of 16 bits, whose vectors
// take half the registers, unless many rows of several tensors are in flight.
template <class P>
constexpr int l2_blocks() {
  const bool several = fields_in(reads_from<P, 0>()) > 1 || P::kDraws > 0;
  const int least = several ? 3 : 4;
  if (several && (l2_rows_together<P, 1>() > 2 || P::kDraws > 0)) return least;
  return sizeof(typename P::T) == 2 ? least + 1 : least;
}

// Loads the channel tensors that pass kPass needs and that are in memory when it begins: those that
// the launch only reads, or those that it may have written before (kWritten).
template <int kPass, bool kWritten, class P, int kVec>
__device__ __forceinline__ void load_l2_channels(
    const P& p, const Columns<kVec, true>& columns, Known<P> (&known)[kVec]) {
  p.template channel_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
    constexpr bool kIsWritten = !std::is_const_v<std::remove_pointer_t<decltype(pointer)>>;
    if constexpr (has_bit(decltype(uses)::passes, kPass) && kIsWritten == kWritten) {
      typename P::Acc value[kVec];
      load_values(columns, pointer, columns.any() && present, value);
#pragma unroll
      for (int v = 0; v < kVec; ++v) known[v].*field = value[v];
    }
  });
}

// Loads the thread's elements of its next rows. In pass 0 the L2 evicts them last, in pass 1 first.
template <int kPass, class P, int kVec, int kBatch, typename Inputs>
__device__ __forceinline__ void load_l2_rows(
    const P& p, const L2Slice<kVec>& slice, int row, Inputs (&in)[kBatch]) {
#pragma unroll
  for (int u = 0; u < kBatch; ++u) {
    const int at = row + u * kL2RowsPerIteration<P, kVec>;
    if (!slice.has(at)) break;
    each(
        [&](auto i, auto& vector, const auto& from) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(P::kReadBy[kPass], kField)) {
            if constexpr (kPass == 0) {
              vector = load_to_keep(slice.columns, row_at(from, int64_t(at) * p.channels));
            } else {
              vector = load_last(slice.columns, row_at(from, int64_t(at) * p.channels));
            }
          }
        },
        in[u], p.reads);
  }
}

// Computes a pass for the thread's elements of a row.
template <int kPass, class P, int kVec, typename Inputs, typename Sums>
__device__ __forceinline__ void use_l2_row(
    const P& p, const L2Slice<kVec>& slice, int row, bool is_first,
    Known<P> (&known)[kVec], const Inputs& in, Sums& sums) {
  typename P::template Writes<VectorsOf<kVec, true>::template Stored> out;
  typename P::Drawn drawn[kVec];
  draw(p, slice.columns, int64_t(row) * p.channels, drawn);
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    Elements<P> x{};
    each(TakeElement<P::kReadBy[kPass]>{v}, x, in);
    typename P::Cached cached{};
    Terms<P, kPass> term;
    Results<P> y;
    static_cast<typename P::Drawn&>(known[v]) = drawn[v];
    p.template element<kPass, 0u>(x, known[v], cached, term, y);
    each(AddElement{v, is_first}, sums, term);
    if constexpr (kPass == 1) each(PutElement{v}, out, y);
  }
  if constexpr (kPass == 1) {
    each(
        [&](auto i, auto& vector, const auto& to) {
          constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
          if (!kMayLack || to != nullptr) {
            store_last(slice.columns, row_at(to, int64_t(row) * p.channels), vector);
          }
        },
        out, p.writes);
  }
}

// Pass 0 over a slice.
template <class P, int kVec>
__device__ __forceinline__ void sum_l2_slice(
    const P& p, const L2Slice<kVec>& slice, typename P::Acc* shared) {
  constexpr int kRowsPerIteration = kL2RowsPerIteration<P, kVec>;
  constexpr int kBatch = l2_rows_together<P, 0>();
  typename P::template Reads<VectorsOf<kVec, true>::template Loaded> in[kBatch];
  Known<P> known[kVec];
  set_scalars(p, known);
  load_channels<0, 1u>(p, slice.columns, slice.columns.any(), known);
  derive_channels(p, known);
  typename P::template Sums<0, ColumnSumsOf<typename P::Acc, kVec>::template Of> sums = {};
  const int first = slice.first + threadIdx.y;
  for (int row = first; row < slice.last; row += kBatch * kRowsPerIteration) {
    load_l2_rows<0>(p, slice, row, in);
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = row + u * kRowsPerIteration;
      if (!slice.has(at)) break;
      use_l2_row<0>(p, slice, at, at == first, known, in[u], sums);
    }
  }
  leave_l2_sums<0>(p, slice, shared, sums);
}

// Pass 1 over a slice, once `counter` has reached `parts`. The first rows are loaded before.
template <class P, int kVec>
__device__ __forceinline__ void finish_l2_slice(
    const P& p, const L2Slice<kVec>& slice, typename P::Acc* shared, const unsigned* counter,
    int parts) {
  constexpr int kRowsPerIteration = kL2RowsPerIteration<P, kVec>;
  constexpr int kBatch = l2_rows_together<P, 1>();
  typename P::template Reads<VectorsOf<kVec, true>::template Loaded> in[kBatch];
  const int first = slice.first + threadIdx.y;
  load_l2_rows<1>(p, slice, first, in);
  Known<P> known[kVec];
  set_scalars(p, known);
  load_l2_channels<1, false>(p, slice.columns, known);
  wait_for_parts(counter, parts);
  load_l2_channels<1, true>(p, slice.columns, known);
  derive_channels(p, known);
  typename P::template Sums<1, ColumnSumsOf<typename P::Acc, kVec>::template Of> sums = {};
  for (int row = first; row < slice.last; row += kBatch * kRowsPerIteration) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = row + u * kRowsPerIteration;
      if (!slice.has(at)) break;
      use_l2_row<1>(p, slice, at, at == first, known, in[u], sums);
    }
    load_l2_rows<1>(p, slice, row + kBatch * kRowsPerIteration, in);
  }
  if constexpr (P::kUnit[1] == Unit::kChannel) leave_l2_sums<1>(p, slice, shared, sums);
}

template <class P, int kVec>
__global__ void __launch_bounds__(kL2Threads, l2_blocks<P>()) l2_kernel(
    const __grid_constant__ P p, unsigned* counters, int column_tiles, int slices, int lag) {
  static_assert(P::kPasses == 2 && P::kUnit[0] == Unit::kChannel);
  using Acc = typename P::Acc;
  wait_for_earlier_kernels();
  constexpr int kWidth = kL2ThreadsPerRow<P, kVec>;
  const L2Task task = l2_task(column_tiles, slices, kVec, lag);
  if (task.work == L2Work::kNone) return;
  unsigned* const counter = counters + task.tile;
  Acc* const shared = shared_memory<Acc>();

  // What follows from the sums, of kWidth columns.
  if (task.work == L2Work::kEnd) {
    wait_for_parts(counter, slices);
    const int64_t column = (int64_t(task.tile) * kVec + task.part) * kWidth + threadIdx.x;
    const bool active = column < p.channels;
    const int64_t left = p.rows - threadIdx.y * kL2Rows;
    const int stride = kL2RowsPerIteration<P, kVec> * kL2Rows;
    const auto total = collect_column<P, 0>(
        p, column, active, slices, shared, EvenRows{kL2Rows, left, stride});
    if (threadIdx.y == 0 && active) finish_channel<P, 0>(p, column, total);
    count_part(counter);
    return;
  }

  const int64_t begin = int64_t(task.tile) * kWidth * kVec;
  const int first = task.part * kL2Rows;
  const L2Slice<kVec> slice{
      columns_of<kVec, true>(begin, p.channels, threadIdx.x, kWidth), begin, task.part, first,
      first + kL2Rows < p.rows ? first + kL2Rows : int(p.rows)};
  if (task.work == L2Work::kSums) {
    sum_l2_slice(p, slice, shared);
    count_part(counter);
    return;
  }
  finish_l2_slice(p, slice, shared, counter, slices + kVec);
}

}  // namespace fusegen
