// The pointwise kernel: one pass over memory.
//
// A pass that is followed by others takes column sums and leaves them as partial results, for
// final_reduction.cuh; the last pass stores results, and leaves the sums that it has in the same
// way. What follows from earlier passes lies in memory when it begins.
//
// A thread keeps its columns and walks down the lines of its block. A line is a row, or so many
// rows that each line begins at a multiple of a vector: so all but the end of the last one is moved
// by aligned vectors, whatever the number of channels is.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../reduce.cuh"
#include "../shapes.cuh"
#include "elements.cuh"
#include "program.cuh"

namespace fusegen {

constexpr int kPointwiseThreads = 256;

// Brings the sums of a thread's columns together with those of the other threads of the columns,
// and stores them as partial results of this block. For moments, count(v) says of how many values
// the thread's are, and total(v) of how many those of the block.
template <int kVec, typename Acc, typename Sums, typename Count, typename Total, typename Store>
__device__ __forceinline__ void store_column_sums(
    Acc* shared, Sums& sums, const Count& count, const Total& total, const Store& store) {
  constexpr int kMoments = Sums::kComponents - Sums::kFields;
  constexpr int kPlain = Sums::kFields - kMoments;
  // One more than there may be: an array has some.
  Moments<Acc> moments[kMoments + 1][kVec];
  Acc plain[kPlain + 1][kVec];
  int m = 0, s = 0;
  each(
      [&](auto, auto& column) {
        if constexpr (std::is_same_v<decltype(column), Acc(&)[kVec]>) {
#pragma unroll
          for (int v = 0; v < kVec; ++v) plain[s][v] = column[v];
          ++s;
        } else {
#pragma unroll
          for (int v = 0; v < kVec; ++v) moments[m][v] = moments_of(column[v], count(v));
          moments_over_y<kVec>(shared, moments[m], count, total);
          ++m;
        }
      },
      sums);
  // Two at a time, for which there is shared memory.
#pragma unroll
  for (int i = 0; i + 1 < kPlain; i += 2) sum_over_y<kVec>(shared, plain[i], plain[i + 1]);
  if constexpr (kPlain % 2 == 1) sum_over_y<kVec>(shared, plain[kPlain - 1]);
  int slot = 0;
  m = s = 0;
  each(
      [&](auto, auto& column) {
        if constexpr (std::is_same_v<decltype(column), Acc(&)[kVec]>) {
          store(slot++, plain[s++]);
        } else {
          Acc mean[kVec], m2[kVec];
#pragma unroll
          for (int v = 0; v < kVec; ++v) {
            mean[v] = moments[m][v].mean;
            m2[v] = moments[m][v].m2;
          }
          store(slot++, mean);
          store(slot++, m2);
          ++m;
        }
      },
      sums);
}

// kPacked: every row, and group of it, begins at a multiple of a vector, and a line is a row. Where
// it is not, vectors may move the first `whole` elements of a tensor, all of them or none.
template <class P, int kPass, int kVec, bool kPacked>
__global__ void __launch_bounds__(kPointwiseThreads) pointwise_kernel(
    const __grid_constant__ P p, int64_t lines, int64_t lines_per_block, int period,
    int64_t whole) {
  using Acc = typename P::Acc;
  constexpr bool kStores = kPass == P::kPasses - 1;
  constexpr bool kRows = P::kRowTensorsBy[kPass] > 0;
  constexpr bool kGroups = P::kGroupTensorsBy[kPass] > 0;
  wait_for_earlier_kernels();
  const int64_t length = kPacked ? p.channels : period * p.channels;
  const auto columns = line_columns<kVec, kPacked>(
      (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kVec, p.channels, period);
  const bool active = columns.any();

  // Which group and which row of its line each of the thread's columns is of.
  const int64_t groups_of_line = kPacked ? p.groups : period * p.groups;
  const int64_t rows_of_line = kPacked ? 1 : period;
  int64_t group_of[kVec] = {}, row_of[kVec] = {};
  if constexpr (kGroups) {
    const Division by_group(columns.first, p.group_length);
    by_group.template each<kVec>([&](int v, int64_t quotient, int64_t) {
      group_of[v] = kPacked ? by_group.quotient : quotient;  // a packed vector lies in one
    });
  }
  if constexpr (kRows) {
    columns.each([&](int v, int64_t row, int64_t) { row_of[v] = row; });
  }

  // What is known of each of the thread's columns; of the row and the group, in each line anew.
  Known<P> known[kVec];
  set_scalars(p, known);
  load_channels<kPass, 1u << kPass>(p, columns, active, known);
  derive_channels(p, known);
  typename P::template Sums<kPass, ColumnSumsOf<Acc, kVec>::template Of> sums = {};

  // What lies in memory of the row and the group that column v of a line is of. That of the first
  // column is loaded together with the vector. The others seldom are of another one; to find out
  // takes longer than to load again where the thread has eight of them.
  constexpr bool kEarly = kPacked || kVec <= 4;
  struct Values {
    typename P::Row row;
    typename P::Group group;
  };
  const auto values_of = [&](int64_t line, int v) {
    Values values = {};
    p.template row_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, kPass)) {
        auto* const from = pointer + line * rows_of_line + row_of[v];
        values.row.*field = present ? Acc(widen(read(from))) : Acc(0);
      }
    });
    p.template group_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, kPass)) {
        auto* const from = pointer + line * groups_of_line + group_of[v];
        values.group.*field = present ? Acc(widen(read(from))) : Acc(0);
      }
    });
    return values;
  };

  using Vectors = typename P::template Reads<VectorsOf<kVec>::template Loaded>;
  constexpr unsigned kReads = P::kReadBy[kPass];

  // What is done with the thread's vector of a line; only some of its elements may exist.
  const auto take = [&](const auto& here, int64_t line, bool first, const Values& first_values,
                        const Vectors& in) {
    [[maybe_unused]] typename P::template Writes<VectorsOf<kVec>::template Stored> out;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (!here.has(v)) continue;
      Known<P>& k = known[v];
      if constexpr (kRows || kGroups) {
        const bool of_first = kPacked || (kEarly && (!kGroups || group_of[v] == group_of[0]) &&
                                          (!kRows || row_of[v] == row_of[0]));
        const Values values = of_first ? first_values : values_of(line, v);
        static_cast<typename P::Row&>(k) = values.row;
        static_cast<typename P::Group&>(k) = values.group;
        p.derive_row(k);
        p.derive_group(k);
      }
      Elements<P> x;
      each(TakeElement<kReads>{v}, x, in);
      typename P::Kept kept;
      Terms<P, kPass> term;
      Results<P> y;
      p.template element<kPass, 0u>(x, k, kept, term, y);
      each(AddElement{v, first}, sums, term);
      if constexpr (kStores) each(PutElement{v}, out, y);
    }
    if constexpr (kStores) {
      // The place is computed behind the branch: any earlier, it would take registers.
      each(
          [&](auto i, const auto& vector, auto* to) {
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
            if (!kMayLack || to != nullptr) store_pack(here, to, line * length, whole, vector);
          },
          out, p.writes);
    }
  };

  const int64_t begin = blockIdx.y * lines_per_block;
  const int64_t end = begin + lines_per_block < lines ? begin + lines_per_block : lines;
  // First the lines that are full, if vectors may move them.
  using Packed = Columns<kVec, true>;
  const Packed packed{columns.first, 1, kVec};
  const int64_t full = kPacked || lines * length <= whole ? lines : whole > 0 ? lines - 1 : 0;
  const int64_t full_end = end < full ? end : full;
  for (int64_t line = begin + threadIdx.y; active && line < full_end;
       line += kRowsInFlight * blockDim.y) {
    Vectors in[kRowsInFlight];
    Values values[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t at = line + u * blockDim.y;
      if (at >= full_end) break;
      if constexpr (kEarly && (kRows || kGroups)) values[u] = values_of(at, 0);
      each(LoadVectors<kReads, Packed>{packed, at * length, whole}, in[u], p.reads);
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t at = line + u * blockDim.y;
      if (at >= full_end) break;
      take(packed, at, u == 0 && line == begin + threadIdx.y, values[u], in[u]);
    }
  }
  if constexpr (!kPacked) {
    // Then the others, of which the thread takes those that it would have come to.
    const int64_t rest = begin < full ? full : begin;
    const unsigned taker = unsigned(rest - begin) % blockDim.y;  // who has the first one
    const unsigned skipped = (threadIdx.y + blockDim.y - taker) % blockDim.y;
    for (int64_t at = rest + skipped; active && at < end; at += blockDim.y) {
      const auto here = part_of(columns, at * length, p.rows * p.channels);
      if (!here.any()) break;
      Vectors in;
      each(LoadVectors<kReads, Ragged<kVec>>{here, at * length, whole}, in, p.reads);
      take(here, at, at == begin + threadIdx.y, values_of(at, 0), in);
    }
  }

  if constexpr (Terms<P, kPass>::kFields > 0) {
    // The last line may lack the ends of its rows.
    const auto lacks = [&](int64_t line, int v) {
      return line == lines - 1 && !part_of(columns, line * length, p.rows * p.channels).has(v);
    };
    const int64_t own = end - begin - threadIdx.y;  // lines from the thread's first on
    const int64_t mine = (own + blockDim.y - 1) / blockDim.y;
    const auto count = [&](int v) {
      return own > 0 ? Acc(mine - lacks(begin + threadIdx.y + (mine - 1) * blockDim.y, v)) : Acc(0);
    };
    const auto total = [&](int v) {
      const int64_t all = end - begin - lacks(end - 1, v);
      return Acc(all > 0 ? all : 1);
    };
    constexpr int kSlots = Terms<P, kPass>::kComponents;
    store_column_sums<kVec>(
        shared_memory<Acc>(), sums, count, total, [&](int slot, const Acc(&value)[kVec]) {
          if (threadIdx.y != 0 || !active) return;
          store_partials(
              columns, p.partials, blockIdx.y, kSlots, slot, p.channels, period, value);
        });
  }
}

// How the blocks of a pass are chosen: see pointwise_shape().
template <class P, int kPass>
constexpr PointwiseWork pointwise_work() {
  if (Terms<P, kPass>::kFields == 0) return PointwiseWork::kStores;
  int reads = 0;
  for (unsigned mask = P::kReadBy[kPass]; mask != 0; mask >>= 1) reads += mask & 1;
  const bool stores = kPass == P::kPasses - 1 && Results<P>::kFields > 0;
  return stores || reads > 1 ? PointwiseWork::kSums : PointwiseWork::kSum;
}

// shape: that of pointwise_shape() for pointwise_work(). A pass with sums leaves as many partial
// results of a column as the grid has blocks in y, times the period.
template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_pointwise(
    const P& p, const PointwiseShape& shape, int64_t whole, cudaStream_t stream) {
  constexpr bool kSums = Terms<P, kPass>::kFields > 0;
  const size_t shared_bytes = kSums ? kPointwiseThreads * 2 * kVec * sizeof(typename P::Acc) : 0;
  return launch(
      pointwise_kernel<P, kPass, kVec, kPacked>, shape.grid, shape.block, shared_bytes, stream, p,
      shape.lines, shape.lines_per_block, shape.period, whole);
}

}  // namespace fusegen
