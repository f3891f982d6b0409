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
#include "../tile_shapes.cuh"
#include "column_layout.cuh"
#include "elements.cuh"
#include "pointwise_sums.cuh"
#include "program.cuh"

namespace fusegen {

// The fields of Reads, and of Writes, that pass kPass moves and that are [batch, channels,
// positions].
template <class P, int kPass>
constexpr unsigned kOuterReadsOf = P::kReadBy[kPass] & P::kOuterReads;
template <class P, int kPass>
constexpr unsigned kOuterWritesOf = kPass == P::kPasses - 1 ? P::kOuterWrites : 0u;

// Bytes of an element of these.
template <class P, int kPass>
constexpr int kTileBytes =
    read_bytes<P>(kOuterReadsOf<P, kPass>) + write_bytes<P>(kOuterWritesOf<P, kPass>);

// One thread of the kernel. step: how many neighbouring elements of an outer tensor one access
// moves: a vector of kVec, half of it, or 1. The positions of a channel are a multiple of it.
template <class P, int kPass, int kVec, bool kPacked>
class TileThread {
 public:
  using Acc = typename P::Acc;
  using Sums = typename P::template Sums<kPass, ColumnSumsOf<Acc, kVec>::template Of>;

  __device__ __forceinline__ TileThread(const P& p, const ImageTiles& tiles, int step)
      : p_(p),
        tiles_(tiles),
        step_(step),
        first_channel_(int64_t(blockIdx.x) * blockDim.x * kVec),
        columns_(columns_of<kVec, kPacked>(first_channel_, p.channels, threadIdx.x, blockDim.x)) {
    const int64_t left = p.channels - first_channel_;
    channels_ = left < blockDim.x * kVec ? int(left) : int(blockDim.x) * kVec;
  }

  __device__ __forceinline__ void run() {
    set_scalars(p_, known_);
    load_channels<kPass, 1u << kPass>(p_, columns_, columns_.any(), known_);
    derive_channels(p_, known_);
    const int64_t begin = blockIdx.y * tiles_.per_block;
    const int64_t end = begin + tiles_.per_block < tiles_.count ? begin + tiles_.per_block
                                                                 : tiles_.count;
    int64_t image = begin / tiles_.per_image;
    int64_t tile = begin - image * tiles_.per_image;
    for (int64_t left = end - begin; left > 0; --left) {
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
    if constexpr (Terms<P, kPass>::kFields > 0) leave_sums();
  }

 private:
  static constexpr bool kStores = kPass == P::kPasses - 1;
  static constexpr unsigned kReads = kOuterReadsOf<P, kPass>;
  static constexpr unsigned kInnerReads = P::kReadBy[kPass] & ~P::kOuterReads;
  static constexpr unsigned kWrites = kOuterWritesOf<P, kPass>;

  using Inner = typename P::template Reads<VectorsOf<kVec, kPacked>::template Loaded>;

  __device__ __forceinline__ void place(int64_t image, int64_t tile) {
    const int64_t first = tile * tiles_.size();
    const int64_t left = tiles_.positions - first;
    count_ = left < tiles_.size() ? int(left) : tiles_.size();
    own_row_ = image * tiles_.positions + first + threadIdx.y;
    outer_ = (image * p_.channels + first_channel_) * tiles_.positions + first;
  }

  // Where an element is in the shared array of a tensor. The vectors of a channel take turns by
  // the channel: threads with neighbouring vectors of channels access other banks.
  __device__ __forceinline__ int index_of(unsigned channel, unsigned position) const {
    const unsigned turns = tiles_.vectors<kVec>() - 1u;
    const unsigned vector = position / kVec ^ (channel / kVec & turns & 15u);
    return int((channel << tiles_.shift) + vector * kVec + position % kVec);
  }
  __device__ __forceinline__ unsigned own_channel(int v) const {
    return kPacked ? threadIdx.x * kVec + v : threadIdx.x + v * blockDim.x;
  }

  // The shared array of a field of Reads or Writes.
  template <typename E>
  __device__ __forceinline__ E* array(int bytes_before) const {
    const int elements = (int(blockDim.x) * kVec) << tiles_.shift;
    return reinterpret_cast<E*>(shared_memory<unsigned char>() + bytes_before * elements);
  }
  template <int kField, typename E>
  __device__ __forceinline__ std::remove_const_t<E>* read_array() const {
    return array<std::remove_const_t<E>>(read_bytes<P>(below(kReads, kField)));
  }
  template <int kField, typename E>
  __device__ __forceinline__ E* write_array() const {
    return array<E>(read_bytes<P>(kReads) + write_bytes<P>(below(kWrites, kField)));
  }

  // Calls visit(index in a shared array, place in an outer tensor) for what the thread has of the
  // tile in the order of outer tensors: vectors or single elements, whose neighbours the
  // neighbouring threads have.
  template <int kStep, typename Visit>
  __device__ __forceinline__ void each_outer(const Visit& visit) const {
    constexpr int kTurns = kTileVectors * kVec / kStep;
    const unsigned threads = blockDim.x * blockDim.y;
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll kTileVectors
    for (int u = 0; u < kTurns; ++u) {
      const unsigned at = (thread + u * threads) * kStep;
      const unsigned channel = at >> tiles_.shift, position = at - (channel << tiles_.shift);
      if (int(channel) >= channels_ || int(position) >= count_) continue;
      visit(index_of(channel, position), outer_ + channel * tiles_.positions + position);
    }
  }

  // Brings the tile of an outer tensor to shared memory.
  template <int kStep, typename E>
  __device__ __forceinline__ void bring(E* to, const E* from) const {
    each_outer<kStep>([&](int index, int64_t at) {
      if constexpr (kStep * sizeof(E) >= 4) {  // what an asynchronous copy moves at least
        constexpr int kWords = sizeof(Pack<E, kStep>) / sizeof(Word<E, kStep>);
        auto* const word = reinterpret_cast<Word<E, kStep>*>(to + index);
        const auto* const source = reinterpret_cast<const Word<E, kStep>*>(from + at);
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          __pipeline_memcpy_async(word + w, source + w, sizeof(*word));
        }
      } else {
        to[index] = read(from + at);
      }
    });
  }
  // Stores it out of shared memory.
  template <int kStep, typename E>
  __device__ __forceinline__ void take(const E* from, E* to) const {
    each_outer<kStep>([&](int index, int64_t at) {
      const auto vector = load_words<kStep>(from + index, [](auto* word) { return *word; });
      Pack<E, kStep> pack;
      memcpy(&pack, &vector, sizeof(pack));
      store_pack(Columns<kStep, true>{0, 1, kStep}, to + at, pack);
    });
  }

  template <int kStep>
  __device__ __forceinline__ void bring_all() const {
    each(
        [&](auto i, auto* from) {
          constexpr int kField = decltype(i)::value;
          using E = std::remove_pointer_t<decltype(from)>;
          if constexpr (has_bit(kReads, kField)) bring<kStep>(read_array<kField, E>(), from);
        },
        p_.reads);
  }
  template <int kStep>
  __device__ __forceinline__ void take_all() const {
    each(
        [&](auto i, auto* to) {
          constexpr int kField = decltype(i)::value;
          using E = std::remove_pointer_t<decltype(to)>;
          if constexpr (has_bit(kWrites, kField)) {
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, kField);
            if (!kMayLack || to != nullptr) take<kStep>(write_array<kField, E>(), to);
          }
        },
        p_.writes);
  }

  __device__ __forceinline__ void run_tile() {
    if constexpr (kReads != 0) {
      if (step_ == kVec) {
        bring_all<kVec>();
      } else if (kVec > 2 && step_ > 1) {
        bring_all<kVec / 2>();
      } else {
        bring_all<1>();
      }
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
          [&](auto i, auto& vector, auto* from) {
            if constexpr (has_bit(kInnerReads, decltype(i)::value)) {
              vector = load_pack(columns_, from + row);
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
      use(u, row, inner[u]);
      ++rows_;
    }
    if constexpr (kWrites != 0) {
      __syncthreads();
      if (step_ == kVec) {
        take_all<kVec>();
      } else if (kVec > 2 && step_ > 1) {
        take_all<kVec / 2>();
      } else {
        take_all<1>();
      }
    }
  }

  // Whether the thread has elements of its position u of the tile.
  __device__ __forceinline__ bool has_position(int u) const {
    return columns_.any() && int(threadIdx.y + u * blockDim.y) < count_;
  }

  // Computes the thread's vector of its position u, in the row that begins at `row`.
  __device__ __forceinline__ void use(int u, int64_t row, const Inner& inner) {
    typename P::Row row_values{};
    if constexpr (P::kRowTensorsBy[kPass] > 0) {
      p_.template row_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
        if constexpr (has_bit(decltype(uses)::passes, kPass)) {
          auto* const from = pointer + own_row_ + u * blockDim.y;
          row_values.*field = present ? Acc(widen(read(from))) : Acc(0);
        }
      });
      Known<P> k{known_[0], {}, row_values, {}};
      p_.derive_row(k);
      row_values = k;
    }
    const unsigned position = threadIdx.y + u * blockDim.y;
    [[maybe_unused]] typename P::template Writes<VectorsOf<kVec>::template Stored> out;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (!columns_.has(v)) continue;
      const int at = index_of(own_channel(v), position);
      Elements<P> x{};
      each(TakeElement<kInnerReads>{v}, x, inner);
      each(
          [&](auto i, Acc& value, auto* from) {
            constexpr int kField = decltype(i)::value;
            using E = std::remove_pointer_t<decltype(from)>;
            if constexpr (has_bit(kReads, kField)) value = widen(read_array<kField, E>()[at]);
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
            [&](auto i, auto& vector, const Acc& value, auto* to) {
              constexpr int kField = decltype(i)::value;
              using E = std::remove_pointer_t<decltype(to)>;
              if constexpr (has_bit(kWrites, kField)) {
                store_value(write_array<kField, E>() + at, value);
              } else {
                store_value(&vector[v], value);
              }
            },
            out, y, p_.writes);
      }
    }
    if constexpr (kStores) {
      each(
          [&](auto i, const auto& vector, auto* to) {
            constexpr int kField = decltype(i)::value;
            if constexpr (!has_bit(kWrites, kField)) {
              constexpr bool kMayLack = has_bit(P::kOptionalWrites, kField);
              if (!kMayLack || to != nullptr) store_pack(columns_, to + row, vector);
            }
          },
          out, p_.writes);
    }
  }

  // Stores the sums of the block as partial results.
  __device__ __forceinline__ void leave_sums() {
    constexpr int kSlots = Terms<P, kPass>::kComponents;
    const Acc own = Acc(rows_), all = Acc(tiles_.rows_of_block(blockIdx.y));
    store_column_sums<kVec>(
        shared_memory<Acc>(), sums_, [&](int) { return own; }, [&](int) { return all; },
        [&](int slot, const Acc(&value)[kVec]) {
          if (threadIdx.y != 0 || !columns_.any()) return;
          store_values(
              columns_, p_.partials + (int64_t(blockIdx.y) * kSlots + slot) * p_.channels, value);
        });
  }

  const P& p_;
  const ImageTiles& tiles_;
  const int step_;
  const int64_t first_channel_;  // of the block
  const Columns<kVec, kPacked> columns_;
  int channels_;     // of the block
  int count_;        // positions of the tile
  int64_t own_row_;  // the thread's first one of the tile
  int64_t outer_;    // where the tile begins in outer tensors
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
  if (p.positions % step != 0) step = p.positions % (kVec / 2) == 0 ? kVec / 2 : 1;
  return launch(
      tile_kernel<P, kPass, kVec, kPacked>, shape.grid, shape.block, arrays > sums ? arrays : sums,
      stream, p, shape.tiles, step);
}

}  // namespace fusegen
