// Two passes over columns that stay in the L2 meanwhile: pass 0 sums them up, pass 1 makes results.
//
// Columns are taken in tiles whose rows fill a line of the L2. A slice is kL2Rows rows of a tile;
// blocks take slices in the order of their indices, in steps. A step sums up all slices of one
// tile and makes the results of the tile `lag` before it, so that what is read a second time is
// still in the L2. In between, some blocks make of the partial results of the slices what the
// results need. A counter for each tile says how much of it is done, and a block waits for it: for
// blocks before it only, which have started by then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../l2_shapes.cuh"
#include "../l2_steps.cuh"
#include "../shapes.cuh"
#include "column_layout.cuh"
#include "elements.cuh"
#include "final_reduction.cuh"
#include "program.cuh"

namespace fusegen {

// Rows that a thread loads before it uses the first: as many as registers have room for beside what
// it has of its columns.
template <class P, int kPass>
__host__ __device__ constexpr int l2_rows_together() {
  constexpr int kReads = fields_in(P::kReadBy[kPass]);
  constexpr int kMost = 7;  // values of each column that fit 64 registers beside the rest
  using Sums = typename P::template Sums<kPass, TypeOf>;
  // Moments are three values while they are summed up.
  const int values = P::kChannelValuesBy[kPass] + 2 * Sums::kComponents - Sums::kFields;
  if (kReads == 1) return 8;
  return kReads == 2 && values <= kMost ? 4 : 2;
}

// Blocks that a multiprocessor holds at least: one more where elements have 16 bits, whose vectors
// take half the registers, unless many rows of several tensors are on their way.
template <class P>
constexpr int l2_blocks() {
  const bool several = fields_in(reads_from<P, 0>()) > 1;
  const int least = several ? 3 : 4;
  if (several && l2_rows_together<P, 1>() > 2) return least;
  return sizeof(typename P::T) == 2 ? least + 1 : least;
}

// Threads of a block for each row, and rows that a block has threads for.
template <class P, int kVec>
constexpr int kL2Width = kL2LineBytes / int(kVec * sizeof(typename P::T));
template <class P, int kVec>
constexpr int kL2Height = kL2Threads / kL2Width<P, kVec>;

// The columns of a tile in a thread, and the rows of a slice.
template <int kVec>
struct L2Slice {
  Columns<kVec, true> columns;
  int64_t begin;    // the tile's first column
  int index;        // of the slice in its tile
  int first, last;  // rows

  __device__ __forceinline__ bool has(int row) const { return columns.any() && row < last; }
};

// What a thread loads of the channel tensors that pass kPass needs and that lie in memory when it
// begins: those that the launch only reads, or those that may be written in it before.
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

// The thread's elements of its next rows. Those of pass 0 are kept in the L2 before anything else,
// those of pass 1 are the first to leave it.
template <int kPass, class P, int kVec, int kBatch, typename Inputs>
__device__ __forceinline__ void load_l2_rows(
    const P& p, const L2Slice<kVec>& slice, int row, Inputs (&in)[kBatch]) {
#pragma unroll
  for (int u = 0; u < kBatch; ++u) {
    const int at = row + u * kL2Height<P, kVec>;
    if (!slice.has(at)) break;
    each(
        [&](auto i, auto& vector, auto* from) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(P::kReadBy[kPass], kField)) {
            if constexpr (kPass == 0) {
              vector = load_to_keep(slice.columns, from + int64_t(at) * p.channels);
            } else {
              vector = load_last(slice.columns, from + int64_t(at) * p.channels);
            }
          }
        },
        in[u], p.reads);
  }
}

// What a pass does with the thread's elements of a row.
template <int kPass, class P, int kVec, typename Inputs, typename Sums>
__device__ __forceinline__ void use_l2_row(
    const P& p, const L2Slice<kVec>& slice, int row, bool is_first,
    const Known<P> (&known)[kVec], const Inputs& in, Sums& sums) {
  typename P::template Writes<VectorsOf<kVec, true>::template Stored> out;
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    Elements<P> x{};
    each(TakeElement<P::kReadBy[kPass]>{v}, x, in);
    typename P::Kept kept{};
    Terms<P, kPass> term;
    Results<P> y;
    p.template element<kPass, 0u>(x, known[v], kept, term, y);
    each(AddElement{v, is_first}, sums, term);
    if constexpr (kPass == 1) each(PutElement{v}, out, y);
  }
  if constexpr (kPass == 1) {
    each(
        [&](auto i, auto& vector, auto* to) {
          constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
          if (!kMayLack || to != nullptr) {
            store_last(slice.columns, to + int64_t(row) * p.channels, vector);
          }
        },
        out, p.writes);
  }
}

// Calls leave_sums() for sums that follow each other.
template <int kBegin, typename Acc, int kFields, int kVec, std::size_t... kIndices>
__device__ __forceinline__ Acc* leave_neighbours(
    Acc* shared, const L2Partials<Acc>& place, Acc (&sums)[kFields][kVec],
    std::index_sequence<kIndices...>) {
  return leave_sums(shared, place, sums[kBegin + kIndices]...);
}

// Leaves the sums of a pass from field kField on as partial results of the slice: moments one at a
// time, others together where they follow each other. `shared`: what is free of shared memory.
template <class P, int kPass, int kField, typename Acc, int kFields, int kVec>
__device__ __forceinline__ void leave_from(
    Acc* shared, const L2Partials<Acc>& place, Acc (&sums)[kFields][kVec],
    PilotSums<Acc> (&moments)[kFields][kVec], Acc count, Acc total) {
  constexpr unsigned kMomentFields = moments_of_pass<P, kPass>();
  if constexpr (kField < P::template Sums<kPass, TypeOf>::kFields) {
    constexpr int kComponent = kField + fields_in(below(kMomentFields, kField));
    if constexpr (has_bit(kMomentFields, kField)) {
      shared = leave_moments(shared, place.from(kComponent), moments[kField], count, total);
      leave_from<P, kPass, kField + 1>(shared, place, sums, moments, count, total);
    } else {
      constexpr int kNext = set_bit(kMomentFields & ~below(~0u, kField), 0);
      constexpr int kEnd = kNext < 0 ? P::template Sums<kPass, TypeOf>::kFields : kNext;
      shared = leave_neighbours<kField>(
          shared, place.from(kComponent), sums, std::make_index_sequence<kEnd - kField>());
      leave_from<P, kPass, kEnd>(shared, place, sums, moments, count, total);
    }
  }
}

// Leaves all sums of a pass.
template <int kPass, class P, int kVec, typename Sums>
__device__ __forceinline__ void leave_l2_sums(
    const P& p, const L2Slice<kVec>& slice, typename P::Acc* shared, Sums& sums) {
  constexpr int kHeight = kL2Height<P, kVec>;
  using Acc = typename P::Acc;
  const int own = slice.last - slice.first - threadIdx.y;  // rows from the thread's first on
  const Acc count = own > 0 ? Acc((own + kHeight - 1) / kHeight) : Acc(0);
  const L2Partials<Acc> place{
      p.partials + int64_t(slice.index) * Sums::kComponents * p.channels + slice.begin, p.channels,
      p.channels - slice.begin};
  Acc plain[Sums::kFields][kVec];
  PilotSums<Acc> moments[Sums::kFields][kVec];
  each(
      [&](auto i, auto& sum) {
        constexpr int kField = decltype(i)::value;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          if constexpr (has_bit(moments_of_pass<P, kPass>(), kField)) {
            moments[kField][v] = sum[v];
          } else {
            plain[kField][v] = sum[v];
          }
        }
      },
      sums);
  leave_from<P, kPass, 0>(shared, place, plain, moments, count, Acc(slice.last - slice.first));
}

// Pass 0 over a slice.
template <class P, int kVec>
__device__ __forceinline__ void sum_l2_slice(
    const P& p, const L2Slice<kVec>& slice, typename P::Acc* shared) {
  constexpr int kHeight = kL2Height<P, kVec>;
  constexpr int kBatch = l2_rows_together<P, 0>();
  typename P::template Reads<VectorsOf<kVec, true>::template Loaded> in[kBatch];
  Known<P> known[kVec];
  set_scalars(p, known);
  load_channels<0, 1u>(p, slice.columns, slice.columns.any(), known);
  derive_channels(p, known);
  typename P::template Sums<0, ColumnSumsOf<typename P::Acc, kVec>::template Of> sums = {};
  const int first = slice.first + threadIdx.y;
  for (int row = first; row < slice.last; row += kBatch * kHeight) {
    load_l2_rows<0>(p, slice, row, in);
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = row + u * kHeight;
      if (!slice.has(at)) break;
      use_l2_row<0>(p, slice, at, at == first, known, in[u], sums);
    }
  }
  leave_l2_sums<0>(p, slice, shared, sums);
}

// Pass 1 over a slice, when `counter` has come to `parts`. The first rows are loaded before.
template <class P, int kVec>
__device__ __forceinline__ void finish_l2_slice(
    const P& p, const L2Slice<kVec>& slice, typename P::Acc* shared, const unsigned* counter,
    int parts) {
  constexpr int kHeight = kL2Height<P, kVec>;
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
  for (int row = first; row < slice.last; row += kBatch * kHeight) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = row + u * kHeight;
      if (!slice.has(at)) break;
      use_l2_row<1>(p, slice, at, at == first, known, in[u], sums);
    }
    load_l2_rows<1>(p, slice, row + kBatch * kHeight, in);
  }
  if constexpr (P::kUnit[1] == Unit::kChannel) leave_l2_sums<1>(p, slice, shared, sums);
}

template <class P, int kVec>
__global__ void __launch_bounds__(kL2Threads, l2_blocks<P>()) l2_kernel(
    const __grid_constant__ P p, unsigned* counters, int tiles, int slices, int lag) {
  static_assert(P::kPasses == 2 && P::kUnit[0] == Unit::kChannel);
  using Acc = typename P::Acc;
  wait_for_earlier_kernels();
  constexpr int kWidth = kL2Width<P, kVec>;
  const L2Task task = l2_task(tiles, slices, kVec, lag);
  if (task.work == L2Work::kNone) return;
  unsigned* const counter = counters + task.tile;
  Acc* const shared = shared_memory<Acc>();

  // What follows from the sums, of kWidth columns.
  if (task.work == L2Work::kEnd) {
    wait_for_parts(counter, slices);
    const int64_t column = (int64_t(task.tile) * kVec + task.part) * kWidth + threadIdx.x;
    const bool active = column < p.channels;
    const int64_t left = p.rows - threadIdx.y * kL2Rows;
    const auto total = collect_partials<P, 0>(
        p, column, active, slices, shared, kL2Rows, left, kL2Height<P, kVec> * kL2Rows);
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

// The launch for these sizes; none fits where the two-pass schedule is faster.
template <int kVec, bool kPacked, class P>
L2Shape l2_shape(const P& p, const Shapes& shapes) {
  constexpr ColumnWork kWork = column_work<P, 0>();
  constexpr Target kTarget = P::kTarget;
  return l2_shape(shapes, p.rows, p.channels, kVec, kPacked, kWork, kTarget.l2_bytes);
}

// counters: one for each tile, shape.tiles of them.
template <int kVec, class P>
cudaError_t launch_l2(
    const P& p, const L2Shape& shape, unsigned* counters, cudaStream_t stream) {
  const cudaError_t error = clear_counters(counters, shape.tiles, stream);
  if (error != cudaSuccess) return error;
  constexpr int kComponents = most_components<P, 0>();
  constexpr int kMoments = std::max(
      fields_in(moments_of_pass<P, 0>()), fields_in(moments_of_pass<P, 1>()));
  const size_t shared_bytes =
      kL2Warps * (kComponents * shape.block.x * kVec + kMoments) * sizeof(typename P::Acc);
  return launch_in_order(
      l2_kernel<P, kVec>, shape.grid, shape.block, shared_bytes, stream, p, counters, shape.tiles,
      shape.slices, shape.lag);
}

}  // namespace fusegen
