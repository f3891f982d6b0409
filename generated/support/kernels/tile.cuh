// The tile kernel: one pass over memory in which some tensors are [batch, channels, positions], as
// P::kOuterReads and P::kOuterWrites say, and the others [batch * positions, channels].
//
// A block takes tiles of some positions of an image and some channels. A thread has the same
// columns of some rows of a tile, as in the pointwise kernel: so it loads the values of its
// channels once, and sums them by itself. What is [batch, channels, positions] goes through shared
// memory: there its threads have neighbouring positions of a channel when they access memory, as
// vectors, as half of them or as single elements: whatever the channels begin with.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../fetch.cuh"
#include "../launch.cuh"
#include "../spread.cuh"
#include "../tile_shapes.cuh"
#include "elements.cuh"
#include "pointwise_sums.cuh"
#include "program.cuh"
#include "tile_arrays.cuh"

namespace fusegen {

// One thread of the kernel. step: see TileArrays.
template <class P, int kPass, int kVec, bool kPacked>
class TileThread {
 public:
  using Acc = typename P::Acc;
  using Sums = typename P::template Sums<kPass, ColumnSumsOf<Acc, kVec>::template Of>;

  __device__ __forceinline__ TileThread(const P& p, const ImageTiles& tiles, int step)
      : p_(p),
        tiles_(tiles),
        arrays_(p, tiles, step),
        columns_(columns_of<kVec, kPacked>(
            arrays_.first_channel, p.channels, threadIdx.x, blockDim.x)) {}

  __device__ __forceinline__ void run() {
    set_scalars(p_, known_);
    load_channels<kPass, 1u << kPass>(p_, columns_, columns_.any(), known_);
    derive_channels(p_, known_);
    if constexpr (kBySamples<P, kPass>) {
      const unsigned shares = unsigned(tiles_.sample_blocks), part = blockIdx.y % shares;
      const int64_t tile = part * tiles_.per_block;
      const int64_t rest = tiles_.per_image - tile;
      for (int64_t image = blockIdx.y / shares; image < p_.samples; image += gridDim.y / shares) {
        sums_ = {};
        rows_ = 0;
        set_samples<kPass>(p_, columns_, columns_.any(), image, known_);
        run_tiles(image, tile, rest < tiles_.per_block ? rest : tiles_.per_block);
        if constexpr (Terms<P, kPass>::kFields > 0) {
          leave_sums(image * shares + part, tiles_.sample_rows().of_block(part));
        }
        __syncthreads();
      }
    } else {
      const int64_t begin = blockIdx.y * tiles_.per_block;
      const int64_t end = begin + tiles_.per_block < tiles_.count ? begin + tiles_.per_block
                                                                   : tiles_.count;
      const int64_t image = begin / tiles_.per_image;
      run_tiles(image, begin - image * tiles_.per_image, end - begin);
      if constexpr (Terms<P, kPass>::kFields > 0) {
        leave_sums(blockIdx.y, tiles_.rows_of_block(blockIdx.y));
      }
    }
  }

 private:
  static constexpr bool kStores = kPass == P::kPasses - 1;
  using Arrays = TileArrays<P, kPass, kVec>;
  static constexpr unsigned kReads = Arrays::kReads, kWrites = Arrays::kWrites;
  static constexpr unsigned kInnerReads = P::kReadBy[kPass] & ~P::kOuterReads;

  using Inner = typename P::template Reads<VectorsOf<kVec, kPacked>::template Loaded>;

  // So many tiles, from one of an image on.
  __device__ __forceinline__ void run_tiles(int64_t image, int64_t tile, int64_t left) {
    for (; left > 0; --left) {
      place(image, tile);
      run_tile();
      // Where tensors are both read and written through shared memory, each has an array of its
      // own, and the barriers between them are enough.
      if constexpr (kReads == 0 || kWrites == 0) {
        if (left > 1) __syncthreads();
      }
      if (++tile == tiles_.per_image) {
        tile = 0;
        ++image;
      }
    }
  }

  __device__ __forceinline__ void place(int64_t image, int64_t tile) {
    const int64_t first = tile * tiles_.size();
    arrays_.place(image, first);
    own_row_ = image * tiles_.positions + first + threadIdx.y;
  }

  __device__ __forceinline__ unsigned own_channel(int v) const {
    return kPacked ? threadIdx.x * kVec + v : threadIdx.x + v * blockDim.x;
  }

  __device__ __forceinline__ void run_tile() {
    if constexpr (kReads != 0) {
      arrays_.bring_all();
      end_row();
    }
    // All loads of a tile are in flight together.
    Inner inner[kTileVectors];
    const int64_t step = blockDim.y * p_.channels;
    int64_t row = own_row_ * p_.channels;
#pragma unroll
    for (int u = 0; u < kTileVectors; ++u, row += step) {
      if (!has_position(u)) break;
      each(
          [&](auto i, auto& vector, const auto& from) {
            if constexpr (has_bit(kInnerReads, decltype(i)::value)) {
              load_inner(vector, from, row, u);
            }
          },
          inner[u], p_.reads);
    }
    if constexpr (kReads != 0) {
      wait_for_rows<0>();
      __syncthreads();
    }
    row = own_row_ * p_.channels;
#pragma unroll
    for (int u = 0; u < kTileVectors; ++u, row += step) {
      if (!has_position(u)) break;
      use(u, row, inner[u], inner[0]);
      ++rows_;
    }
    if constexpr (kWrites != 0) {
      __syncthreads();
      arrays_.take_all();
    }
  }

  // Loads the thread's vector of its position u, in the row that begins at `row`.
  template <typename Vector, typename Pointer>
  __device__ __forceinline__ void load_inner(
      Vector& vector, const Pointer& from, int64_t row, int) const {
    vector = load_pack(columns_, row_at(from, row));
  }
  // Of a tensor with fewer rows. Where one row may be for all of the tile, it is loaded once: a
  // vector for each position would take registers.
  template <typename Vector, typename E, bool kRepeats>
  __device__ __forceinline__ void load_inner(
      Vector& vector, const SpreadPointer<E, kRepeats>& from, int64_t, int u) const {
    if (kRepeats || u == 0) vector = load_pack(columns_, from.row(own_row_ + u * blockDim.y));
  }
  // Completes the vectors of position u: with those of the first one, or with what lies in another
  // row after all.
  struct Complete {
    const TileThread& thread;
    int u;

    template <int kField, typename Vector, typename Pointer>
    __device__ __forceinline__ void operator()(
        Index<kField>, Vector&, const Vector&, const Pointer&) const {}
    template <int kField, typename Vector, typename E>
    __device__ __forceinline__ void operator()(
        Index<kField>, Vector& vector, const Vector& first,
        const SpreadPointer<E, false>& from) const {
      if constexpr (has_bit(kInnerReads, kField)) {
        vector = first;
        if (u > 0 && from.period != thread.tiles_.positions) {
          const int64_t row = thread.own_row_ + u * blockDim.y;
          vector = load_pack(thread.columns_, from.row(row));
        }
      }
    }
  };

  // Whether the thread has elements of its position u of the tile.
  __device__ __forceinline__ bool has_position(int u) const {
    return columns_.any() && int(threadIdx.y + u * blockDim.y) < arrays_.count;
  }

  // Computes the thread's vector of its position u, in the row that begins at `row`. first: what it
  // has loaded for its first position.
  __device__ __forceinline__ void use(
      int u, int64_t row, const Inner& inner, const Inner& first) {
    typename P::Row row_values{};
    if constexpr (P::kRowTensorsBy[kPass] > 0) {
      p_.template row_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
        if constexpr (has_bit(decltype(uses)::passes, kPass)) {
          row_values.*field = load_value<Acc>(pointer, own_row_ + u * blockDim.y, present);
        }
      });
      Known<P> k{known_[0], {}, row_values, {}};
      p_.derive_row(k);
      row_values = k;
    }
    Inner own = inner;
    each(Complete{*this, u}, own, first, p_.reads);
    const unsigned position = threadIdx.y + u * blockDim.y;
    [[maybe_unused]] typename P::template Writes<VectorsOf<kVec>::template Stored> out;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (!columns_.has(v)) continue;
      const int at = arrays_.index_of(own_channel(v), position);
      Elements<P> x{};
      each(TakeElement<kInnerReads>{v}, x, own);
      each(
          [&](auto i, Acc& value, const auto& from) {
            constexpr int kField = decltype(i)::value;
            if constexpr (has_bit(kReads, kField)) {
              using E = std::remove_pointer_t<std::decay_t<decltype(from)>>;
              value = widen(arrays_.template read_array<kField, E>()[at]);
            }
          },
          x, p_.reads);
      Known<P>& k = known_[v];
      static_cast<typename P::Row&>(k) = row_values;
      typename P::Cached cached;
      Terms<P, kPass> term;
      Results<P> y;
      p_.template element<kPass, 0u>(x, k, cached, term, y);
      each(AddElement{v, rows_ == 0}, sums_, term);
      if constexpr (kStores) {
        each(
            [&](auto i, auto& vector, const Acc& value, const auto& to) {
              constexpr int kField = decltype(i)::value;
              if constexpr (has_bit(kWrites, kField)) {
                using E = ElementAt<std::decay_t<decltype(to)>>;
                store_value(arrays_.template write_array<kField, E>() + at, value);
              } else {
                store_value(&vector[v], value);
              }
            },
            out, y, p_.writes);
      }
    }
    if constexpr (kStores) {
      each(
          [&](auto i, const auto& vector, const auto& to) {
            constexpr int kField = decltype(i)::value;
            if constexpr (!has_bit(kWrites, kField)) {
              constexpr bool kMayLack = has_bit(P::kOptionalWrites, kField);
              if (!kMayLack || to != nullptr) store_pack(columns_, row_at(to, row), vector);
            }
          },
          out, p_.writes);
    }
  }

  // Stores the sums of the block, of so many rows, as partial results number `block`.
  __device__ __forceinline__ void leave_sums(int64_t block, int64_t rows) {
    constexpr int kSlots = Terms<P, kPass>::kComponents;
    const Acc own = Acc(rows_), all = Acc(rows);
    store_column_sums<kVec>(
        shared_memory<Acc>(), sums_, [&](int) { return own; }, [&](int) { return all; },
        [&](int slot, const Acc(&value)[kVec]) {
          if (threadIdx.y != 0 || !columns_.any()) return;
          store_values(
              columns_, p_.partials + (block * kSlots + slot) * p_.channels, value);
        });
  }

  const P& p_;
  const ImageTiles& tiles_;
  Arrays arrays_;
  const Columns<kVec, kPacked> columns_;
  int64_t own_row_;  // the thread's first one of the tile
  int rows_ = 0;     // of the thread, so far
  Known<P> known_[kVec];
  Sums sums_ = {};
};

template <class P, int kPass, int kVec, bool kPacked>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks) tile_kernel(
    const __grid_constant__ P p, const __grid_constant__ ImageTiles tiles, int step) {
  wait_for_earlier_kernels();
  TileThread<P, kPass, kVec, kPacked>(p, tiles, step).run();
}

// aligned: whether vectors may move the outer tensors.
template <int kPass, int kVec, bool kPacked, class P>
cudaError_t launch_tile(const P& p, const TileShape& shape, bool aligned, cudaStream_t stream) {
  using Acc = typename P::Acc;
  const int threads = int(shape.block.x * shape.block.y);
  const size_t arrays = size_t(threads) * kTileVectors * kVec * kTileBytes<P, kPass>;
  const size_t sums = Terms<P, kPass>::kFields > 0 ? size_t(threads) * 2 * kVec * sizeof(Acc) : 0;
  int step = aligned ? kVec : 1;
  if (p.positions % step != 0) step = p.positions % (kVec / 2) == 0 ? kVec / 2 : 0;
  return launch(
      tile_kernel<P, kPass, kVec, kPacked>, shape.grid, shape.block, arrays > sums ? arrays : sums,
      stream, p, shape.tiles, step);
}

}  // namespace fusegen
