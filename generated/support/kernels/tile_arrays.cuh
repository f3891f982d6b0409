// The tensors [batch, channels, positions] of a pass in shared memory, where the tile kernel brings
// them, or has what is to be stored: an array for each tensor.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_runtime.h>

#include "../fetch.cuh"
#include "../launch.cuh"
#include "../tile_shapes.cuh"
#include "column_layout.cuh"
#include "program.cuh"

namespace fusegen {

// Bytes of an element of the outer tensors that pass kPass moves.
template <class P, int kPass>
constexpr int kTileBytes =
    read_bytes<P>(kOuterReadsOf<P, kPass>) + write_bytes<P>(kOuterWritesOf<P, kPass>);

// step: how many neighbouring elements one access to memory moves: a vector of kVec, half of it, or
// 1. The positions of a channel are a multiple of it. 0: vectors of kVec where channels begin
// anywhere in one, so that those of shared memory lie elsewhere.
template <class P, int kPass, int kVec>
class TileArrays {
 public:
  static constexpr unsigned kReads = kOuterReadsOf<P, kPass>;
  static constexpr unsigned kWrites = kOuterWritesOf<P, kPass>;

  __device__ __forceinline__ TileArrays(const P& p, const ImageTiles& tiles, int step)
      : first_channel(int64_t(blockIdx.x) * blockDim.x * kVec), p_(p), tiles_(tiles), step_(step) {
    const int64_t left = p.channels - first_channel;
    channels_ = left < blockDim.x * kVec ? int(left) : int(blockDim.x) * kVec;
  }

  // Goes to the tile that begins at a position of an image.
  __device__ __forceinline__ void place(int64_t image, int64_t first) {
    const int64_t left = tiles_.positions - first;
    count = left < tiles_.size() ? int(left) : tiles_.size();
    begin_ = (image * p_.channels + first_channel) * tiles_.positions + first;
  }

  // Where an element is in the shared array of a tensor. The vectors of a channel take turns by
  // the channel: threads with neighbouring vectors of channels access other banks.
  __device__ __forceinline__ int index_of(unsigned channel, unsigned position) const {
    const unsigned turns = tiles_.vectors<kVec>() - 1u;
    const unsigned vector = position / kVec ^ (channel / kVec & turns & 15u);
    return int((channel << tiles_.shift) + vector * kVec + position % kVec);
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

  // Starts to copy the tiles of all tensors that are read.
  __device__ __forceinline__ void bring_all() const {
    if (step_ == kVec) {
      bring_by<kVec>();
    } else if (step_ == 0) {
      bring_by<0>();
    } else if (kVec > 2 && step_ > 1) {
      bring_by<kVec / 2>();
    } else {
      bring_by<1>();
    }
  }
  // Stores the tiles of all that are wanted.
  __device__ __forceinline__ void take_all() const {
    if (step_ == kVec) {
      take_by<kVec>();
    } else if (step_ == 0) {
      take_by<0>();
    } else if (kVec > 2 && step_ > 1) {
      take_by<kVec / 2>();
    } else {
      take_by<1>();
    }
  }

  const int64_t first_channel;  // of the block
  int count;                    // positions of the tile

 private:
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
      if (int(channel) >= channels_ || int(position) >= count) continue;
      visit(index_of(channel, position), begin_ + channel * tiles_.positions + position);
    }
  }

  // Where vectors are shifted: calls vector(channel, position, place in an outer tensor) for those
  // of the thread that the tile has whole, and element(channel, position, place) for elements of
  // others. A channel's first vector and its last one are of one thread.
  template <typename Vector, typename Element>
  __device__ __forceinline__ void each_shifted(const Vector& vector, const Element& element) const {
    const unsigned threads = blockDim.x * blockDim.y;
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int u = 0; u < kTileVectors; ++u) {
      const unsigned at = (thread + u * threads) * kVec;
      const unsigned channel = at >> tiles_.shift;
      if (int(channel) >= channels_) break;
      const int64_t begin = begin_ + channel * tiles_.positions;
      const int before = int(begin % kVec);  // elements of the first vector
      const int first = int(at - (channel << tiles_.shift)) - before;
      const auto elements = [&](int from, int to) {
        for (int p = from < 0 ? 0 : from; p < (to < count ? to : count); ++p) {
          element(channel, unsigned(p), begin + p);
        }
      };
      if (first >= 0 && first + kVec <= count) {
        vector(channel, unsigned(first), begin + first);
      } else {
        elements(first, first + kVec);
      }
      if (first == -before) elements(tiles_.size() - before, tiles_.size());
    }
  }

  // Brings the tile of an outer tensor to shared memory.
  template <int kStep, typename E>
  __device__ __forceinline__ void bring(E* to, const E* from) const {
    if constexpr (kStep == 0) {
      each_shifted(
          [&](unsigned channel, unsigned position, int64_t at) {
            const auto vector = load_words<kVec>(from + at, [](auto* word) { return read(word); });
#pragma unroll
            for (int v = 0; v < kVec; ++v) to[index_of(channel, position + v)] = vector[v];
          },
          [&](unsigned channel, unsigned position, int64_t at) {
            to[index_of(channel, position)] = read(from + at);
          });
    } else {
      bring_aligned<kStep>(to, from);
    }
  }
  template <int kStep, typename E>
  __device__ __forceinline__ void bring_aligned(E* to, const E* from) const {
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
    if constexpr (kStep == 0) {
      each_shifted(
          [&](unsigned channel, unsigned position, int64_t at) {
            Pack<E, kVec> pack;
#pragma unroll
            for (int v = 0; v < kVec; ++v) pack[v] = from[index_of(channel, position + v)];
            store_pack(Columns<kVec, true>{0, 1, kVec}, to + at, pack);
          },
          [&](unsigned channel, unsigned position, int64_t at) {
            to[at] = from[index_of(channel, position)];
          });
    } else {
      take_aligned<kStep>(from, to);
    }
  }
  template <int kStep, typename E>
  __device__ __forceinline__ void take_aligned(const E* from, E* to) const {
    each_outer<kStep>([&](int index, int64_t at) {
      const auto vector = load_words<kStep>(from + index, [](auto* word) { return *word; });
      Pack<E, kStep> pack;
      memcpy(&pack, &vector, sizeof(pack));
      store_pack(Columns<kStep, true>{0, 1, kStep}, to + at, pack);
    });
  }

  template <int kStep>
  __device__ __forceinline__ void bring_by() const {
    each(
        [&](auto i, const auto& from) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(kReads, kField)) {
            using E = std::remove_pointer_t<std::decay_t<decltype(from)>>;
            bring<kStep>(read_array<kField, E>(), from);
          }
        },
        p_.reads);
  }
  template <int kStep>
  __device__ __forceinline__ void take_by() const {
    each(
        [&](auto i, const auto& to) {
          constexpr int kField = decltype(i)::value;
          if constexpr (has_bit(kWrites, kField)) {
            using E = ElementAt<std::decay_t<decltype(to)>>;
            constexpr bool kMayLack = has_bit(P::kOptionalWrites, kField);
            if (!kMayLack || to != nullptr) take<kStep>(write_array<kField, E>(), to);
          }
        },
        p_.writes);
  }

  const P& p_;
  const ImageTiles& tiles_;
  const int step_;
  int channels_;   // of the block
  int64_t begin_;  // of the tile, in the tensors
};

}  // namespace fusegen
