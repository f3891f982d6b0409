// The pointwise kernel: one pass over memory.
//
// A pass that is not the last one takes column sums and stores them as partial results, for
// final_reduction.cuh. The last pass stores results, and partial results of the sums that it has.
// What follows from earlier passes is in memory when a pass begins.
//
// A thread has the same columns in every iteration, in which the block moves on to other tiles. A
// tile is a row, or so many rows that each tile begins at a multiple of a vector: so aligned
// vectors move all but the end of the last tile, whatever the number of channels is.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../launch.cuh"
#include "../shapes.cuh"
#include "elements.cuh"
#include "pointwise_sums.cuh"
#include "program.cuh"

namespace fusegen {

constexpr int kPointwiseThreads = 256;

// Blocks of a multiprocessor at least, for which registers are left: gradients that come back
// through windows want warps more than registers, as measured.
constexpr int kPointwiseBlocksOfWindows = 3;
template <class P, int kPass>
constexpr int pointwise_blocks() {
  if (reads_pooled<P>()) return kPointwiseBlocksOfWindows;
  return kBySamples<P, kPass> && Terms<P, kPass>::kFields > 0 ? kPointwiseBlocksOfSamples : 1;
}

// Tiles that a thread loads before it uses the first. Each row of gradients that come back through
// windows has several loads in flight.
template <class P>
constexpr int kTilesInFlight = reads_pooled<P>() ? 1 : kRowsInFlight;

// kPacked: every row, and group of it, begins at a multiple of a vector, and a tile is a row.
// vector_end: see load_pack().
template <class P, int kPass, int kVec, bool kPacked>
__global__ void __launch_bounds__(kPointwiseThreads, pointwise_blocks<P, kPass>()) pointwise_kernel(
    const __grid_constant__ P p, int64_t tiles, int64_t tiles_per_block, int period,
    int64_t vector_end, int64_t sample_blocks) {
  using Acc = typename P::Acc;
  constexpr bool kStores = kPass == P::kPasses - 1, kSamples = kBySamples<P, kPass>;
  constexpr bool kRows = P::kRowTensorsBy[kPass] > 0;
  constexpr bool kGroups = P::kGroupTensorsBy[kPass] > 0;
  wait_for_earlier_kernels();
  const int64_t length = kPacked ? p.channels : period * p.channels;
  const auto columns = tile_columns<kVec, kPacked>(
      (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kVec, p.channels, period);
  const bool active = columns.any();

  // By samples, tiles are those of the rows of one, from row `origin` on. Vectors move
  // them if all samples begin with one.
  const int64_t rows = kSamples ? p.sample_rows : p.rows, size = rows * p.channels;
  const unsigned shares = kSamples ? unsigned(sample_blocks) : 1u;
  const int64_t part = kSamples ? blockIdx.y % shares : blockIdx.y;
  int64_t sample = kSamples ? blockIdx.y / shares : 0, origin = 0;
  if (kSamples && !kPacked && size % kVec != 0) vector_end = 0;
  const auto element_of = [&](int64_t tile) {
    return kSamples ? tile * length + origin * p.channels : tile * length;
  };

  // The group and the row of each of the thread's columns, counted from the first of the tile.
  const int64_t groups_of_tile = kPacked ? p.groups : period * p.groups;
  const int64_t rows_of_tile = kPacked ? 1 : period;
  int64_t group_of[kVec] = {};
  int row_of[kVec] = {};
  if constexpr (kGroups) {
    const Division by_group(columns.first, p.group_length);
    by_group.template each<kVec>([&](int v, int64_t quotient, int64_t) {
      group_of[v] = kPacked ? by_group.quotient : quotient;  // a packed vector is of one group
    });
  }
  if constexpr (kRows) {
    columns.each([&](int v, int64_t row, int64_t) { row_of[v] = int(row); });
  }
  // Most vectors of long rows are of one row and group, whose values serve all their elements.
  constexpr bool kDivides = !kPacked && (kRows || kGroups);
  const bool is_one = row_of[0] == row_of[kVec - 1] && group_of[0] == group_of[kVec - 1];

  // What is known of each of the thread's columns. Values of the row and the group are set for each
  // tile.
  Known<P> known[kVec];
  set_scalars(p, known);
  load_channels<kPass, 1u << kPass>(p, columns, active, known);
  derive_channels(p, known);
  typename P::template Sums<kPass, ColumnSumsOf<Acc, kVec>::template Of> sums = {};

  // The values in memory of the row and the group of column v of a tile. Those of the first column
  // are loaded together with the vector. The other columns seldom are of another row or group; with
  // eight columns the comparison takes longer than to load the values again. `one`: whether all of
  // them are of the same.
  constexpr bool kEarly = kVec <= 4;
  struct Values {
    typename P::Row row;
    typename P::Group group;
  };
  const auto values_of = [&](int64_t tile, int v) {
    Values values = {};
    p.template row_tensors<kPass>([&](auto uses, auto pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, kPass)) {
        const int64_t at = tile * rows_of_tile + row_of[v] + (kSamples ? origin : 0);
        values.row.*field = load_value<Acc>(pointer, at, present);
      }
    });
    p.template group_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
      if constexpr (has_bit(decltype(uses)::passes, kPass)) {
        const int64_t at =
            tile * groups_of_tile + group_of[v] + (kSamples ? origin * p.groups : 0);
        values.group.*field = load_value<Acc>(pointer, at, present);
      }
    });
    return values;
  };

  using Vectors = typename P::template Reads<VectorsOf<kVec>::template Loaded>;
  constexpr unsigned kReads = P::kReadBy[kPass];

  // Computes the thread's vector of a tile; some of its elements may not exist.
  const auto take = [&](auto one, const auto& here, int64_t tile, bool first,
                        const Values& first_values, const Vectors& in) {
    [[maybe_unused]] typename P::template Writes<VectorsOf<kVec>::template Stored> out;
    typename P::Drawn drawn[kVec];
    draw<kSamples && !kPacked>(p, here, element_of(tile), drawn);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (!here.has(v)) continue;
      Known<P>& k = known[v];
      static_cast<typename P::Drawn&>(k) = drawn[v];
      if constexpr (kRows || kGroups) {
        const bool of_first =
            decltype(one)::value || (kEarly && (!kGroups || group_of[v] == group_of[0]) &&
                                     (!kRows || row_of[v] == row_of[0]));
        const Values values = of_first ? first_values : values_of(tile, v);
        static_cast<typename P::Row&>(k) = values.row;
        static_cast<typename P::Group&>(k) = values.group;
        p.derive_row(k);
        p.derive_group(k);
      }
      Elements<P> x;
      each(TakeElement<kReads>{v}, x, in);
      typename P::Cached cached;
      Terms<P, kPass> term;
      Results<P> y;
      p.template element<kPass, 0u>(x, k, cached, term, y);
      each(AddElement{v, first}, sums, term);
      if constexpr (kStores) each(PutElement{v}, out, y);
    }
    if constexpr (kStores) {
      // The address is computed within the branch: before it, it would take registers.
      each(
          [&](auto i, const auto& vector, const auto& to) {
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, decltype(i)::value);
            if (!kMayLack || to != nullptr) {
              store_pack(here, to, element_of(tile), vector_end, vector);
            }
          },
          out, p.writes);
    }
  };

  const int64_t begin = part * tiles_per_block;
  const int64_t end = begin + tiles_per_block < tiles ? begin + tiles_per_block : tiles;
  // First the tiles with all their rows, if vectors may move them.
  const auto packed = over_rows<P::kHasParts>(
      Columns<kVec, true>{columns.first, 1, kVec}, columns);
  using Packed = std::remove_const_t<decltype(packed)>;
  int64_t full = tiles;
  const int64_t movable = kSamples && vector_end > 0 ? size : vector_end;
  if (!kPacked && tiles * length > movable) full = vector_end > 0 ? tiles - 1 : 0;
  const int64_t full_end = end < full ? end : full;
  const auto run_full = [&](auto one) {
    constexpr bool kLoads = (kEarly || decltype(one)::value) && (kRows || kGroups);
    for (int64_t tile = begin + threadIdx.y; active && tile < full_end;
         tile += kTilesInFlight<P> * blockDim.y) {
      Vectors in[kTilesInFlight<P>];
      Values values[kTilesInFlight<P>];
#pragma unroll
      for (int u = 0; u < kTilesInFlight<P>; ++u) {
        const int64_t at = tile + u * blockDim.y;
        if (at >= full_end) break;
        if constexpr (kLoads) values[u] = values_of(at, 0);
        each(LoadVectors<kReads, Packed>{packed, element_of(at), vector_end}, in[u], p.reads);
      }
#pragma unroll
      for (int u = 0; u < kTilesInFlight<P>; ++u) {
        const int64_t at = tile + u * blockDim.y;
        if (at >= full_end) break;
        take(one, packed, at, u == 0 && tile == begin + threadIdx.y, values[u], in[u]);
      }
    }
  };
  const auto run = [&] {
    if constexpr (kDivides) {
      if (is_one) {
        run_full(std::true_type());
      } else {
        run_full(std::false_type());
      }
    } else {
      run_full(std::true_type());
    }
    if constexpr (!kPacked) {
      // Then the others, masked. Each is of the thread that would have it in the order above.
      const int64_t rest = begin < full ? full : begin;
      const unsigned owner = unsigned(rest - begin) % blockDim.y;  // threadIdx.y of the first one
      const unsigned skipped = (threadIdx.y + blockDim.y - owner) % blockDim.y;
      for (int64_t at = rest + skipped; active && at < end; at += blockDim.y) {
        const auto here =
            over_rows<P::kHasParts>(part_of(columns, at * length, size), columns);
        if (!here.any()) break;
        Vectors in;
        using Masked = std::remove_const_t<decltype(here)>;
        each(LoadVectors<kReads, Masked>{here, element_of(at), vector_end}, in, p.reads);
        take(std::false_type(), here, at, at == begin + threadIdx.y, values_of(at, 0), in);
      }
    }

    if constexpr (Terms<P, kPass>::kFields > 0) {
      // The last tile may lack some rows, or parts of them.
      const auto lacks = [&](int64_t tile, int v) {
        return tile == tiles - 1 && !part_of(columns, tile * length, size).has(v);
      };
      const int64_t own = end - begin - threadIdx.y;  // tiles from the thread's first on
      const int64_t mine = (own + blockDim.y - 1) / blockDim.y;
      const auto count = [&](int v) {
        const int64_t last = begin + threadIdx.y + (mine - 1) * blockDim.y;
        return own > 0 ? Acc(mine - lacks(last, v)) : Acc(0);
      };
      const auto total = [&](int v) {
        const int64_t all = end - begin - lacks(end - 1, v);
        return Acc(all > 0 ? all : 1);
      };
      const int64_t slot_of_block = kSamples ? sample * shares + part : blockIdx.y;
      constexpr int kSlots = Terms<P, kPass>::kComponents;
      store_column_sums<kVec>(
          shared_memory<Acc>(), sums, count, total, [&](int slot, const Acc(&value)[kVec]) {
            if (threadIdx.y != 0 || !active) return;
            store_partials(
                columns, p.partials, slot_of_block, kSlots, slot, p.channels, period, value);
          });
    }
  };
  if constexpr (kSamples) {
    for (; sample < p.samples; sample += gridDim.y / shares) {
      origin = sample * rows;
      sums = {};
      set_samples<kPass>(p, columns, active, sample, known);
      run();
    }
  } else {
    run();
  }
}

// Elements of a thread's vector in a pass: half as many of 16 bits by samples where they need more
// than four values of each column, as kVectorOf has it.
template <class P, int kPass, int kVec>
constexpr int pointwise_vector() {
  if (!kBySamples<P, kPass> || kVec <= 4) return kVec;
  return P::kChannelValuesBy[kPass] + Terms<P, kPass>::kComponents > 4 ? 4 : kVec;
}

// By what the blocks of a pass are chosen: see pointwise_shape().
template <class P, int kPass>
constexpr PointwiseWork pointwise_work() {
  if (Terms<P, kPass>::kFields == 0) return PointwiseWork::kStores;
  int reads = 0;
  for (unsigned mask = P::kReadBy[kPass]; mask != 0; mask >>= 1) reads += mask & 1;
  const bool stores = kPass == P::kPasses - 1 && Results<P>::kFields > 0;
  return stores || reads > 1 ? PointwiseWork::kSums : PointwiseWork::kSum;
}

// shape: that of pointwise_shape() for pointwise_work(). A pass with sums stores as many partial
// results of a column as the grid has blocks in y, times the period.
template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_pointwise(
    const P& p, const PointwiseShape& shape, int64_t vector_end, cudaStream_t stream) {
  constexpr bool kSums = Terms<P, kPass>::kFields > 0;
  const size_t shared_bytes = kSums ? kPointwiseThreads * 2 * kVec * sizeof(typename P::Acc) : 0;
  return launch(
      pointwise_kernel<P, kPass, kVec, kPacked>, shape.grid, shape.block, shared_bytes, stream, p,
      shape.tiles, shape.tiles_per_block, shape.period, vector_end, shape.sample_blocks);
}

}  // namespace fusegen
