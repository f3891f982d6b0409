// A copy of images that exchanges their two dimensions: [images, rows, columns] becomes [images,
// columns, rows]. So a contiguous tensor comes into channels_last, and back.
//
// A tile goes through shared memory. Threads with neighbouring elements of a row read it there,
// asynchronously and all at once; then threads with neighbouring elements of a column write it. An
// access moves a vector of 16 bytes, or less where the sizes or the tensors' beginnings forbid it.
// Zeros behind the rows of the source go to memory alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "../call.h"
#include "../fetch.cuh"
#include "../image_copy.h"
#include "../image_copy_shapes.cuh"
#include "../launch.cuh"
#include "../packs.cuh"
#include "../types.cuh"
#include "image_padding.cuh"

namespace fusegen {

// One block of the kernel.
template <typename From, typename To>
class CopiedTile {
 public:
  static constexpr int kReads = 16 / sizeof(From), kWrites = 16 / sizeof(To);

  __device__ __forceinline__ CopiedTile(const From* from, To* to, const CopyTiles& tiles)
      : tiles_(tiles), shared_(shared_memory<From>()) {
    const unsigned image = blockIdx.x / tiles.per_image;
    const unsigned tile = blockIdx.x - image * tiles.per_image;
    const unsigned across = tile / tiles.row_tiles;
    const int64_t row = int64_t(tile - across * tiles.row_tiles) * tiles.tile_rows;
    const int64_t column = int64_t(across) << tiles.shift;
    const int64_t below = tiles.rows - row, behind = tiles.columns - column;
    rows_ = below < tiles.tile_rows ? int(below) : tiles.tile_rows;
    columns_ = behind < (1 << tiles.shift) ? int(behind) : 1 << tiles.shift;
    const int64_t given = tiles.given - row;
    given_ = given < rows_ ? given > 0 ? int(given) : 0 : rows_;
    const int64_t first = image * tiles.columns;
    from_ = from + first * tiles.given + row * tiles.columns + column;
    to_ = to + (first + column) * tiles.rows + row;
  }

  __device__ __forceinline__ void read_tile() const {
    if (tiles_.read_step == kReads) {
      read_by<kReads>();
    } else if (tiles_.read_step > 1) {
      read_by<kReads / 2>();
    } else {
      read_by<1>();
    }
  }

  __device__ __forceinline__ void write_tile() const {
    if (tiles_.given < tiles_.rows) {
      if constexpr (sizeof(To) == 2) write_padded();
    } else if (tiles_.is_narrow) {
      if (tiles_.write_step > 1) {
        write_in_order<kWrites>();
      } else {
        write_in_order<1>();
      }
    } else if (tiles_.write_step == kWrites) {
      write_by<kWrites>();
    } else if (tiles_.write_step > 1) {
      write_by<kWrites / 2>();
    } else {
      write_by<1>();
    }
  }

 private:
  // The rows of a tile, one after the other: kStep elements by each thread.
  template <int kStep>
  __device__ __forceinline__ void read_by() const {
    const unsigned width = 1u << tiles_.shift, size = unsigned(given_) << tiles_.shift;
#pragma unroll 4
    for (unsigned at = threadIdx.x * kStep; at < size; at += blockDim.x * kStep) {
      const int row = int(at >> tiles_.shift), column = int(at & (width - 1));
      if (column >= columns_) continue;
      From* const own = shared_ + tiles_.index_of(row, column);
      const From* const source = from_ + row * tiles_.columns + column;
      using W = Word<From, kStep>;
      if constexpr (sizeof(W) >= 4) {  // what an asynchronous copy moves at least
        __pipeline_memcpy_async(
            reinterpret_cast<W*>(own), reinterpret_cast<const W*>(source), sizeof(W));
      } else {
        *own = read(source);
      }
    }
  }

  // Columns that lie apart in memory: kStep elements by each of the threads beside each other.
  template <int kStep>
  __device__ __forceinline__ void write_by() const {
    const int thread = int(threadIdx.x), beside = 1 << tiles_.beside;
    const int group = thread >> tiles_.lanes, lane = thread - (group << tiles_.lanes);
    const int first = ((group >> tiles_.beside << tiles_.lanes) + lane) * kStep;
    const int step = int(blockDim.x) >> tiles_.beside;
    for (int column = group & (beside - 1); column < columns_; column += beside) {
      To* const to = to_ + column * tiles_.rows;
      for (int row = first; row < rows_; row += step * kStep) {
        Pack<To, kStep> pack;
#pragma unroll
        for (int v = 0; v < kStep; ++v) {
          pack[v] = copied<To>(shared_[tiles_.index_of(row + v, column)]);
        }
        store_words(to + row, pack, [](auto* at, const auto& word) { __stwb(at, word); });
      }
    }
  }

  // Columns that follow each other in memory: kStep elements by each thread, of one column or of
  // several.
  template <int kStep>
  __device__ __forceinline__ void write_in_order() const {
    const unsigned rows = unsigned(rows_), size = rows * unsigned(columns_);
    for (unsigned at = threadIdx.x * kStep; at < size; at += blockDim.x * kStep) {
      unsigned column = at / rows, row = at - column * rows;
      Pack<To, kStep> pack;
#pragma unroll
      for (int v = 0; v < kStep; ++v) {
        pack[v] = copied<To>(shared_[tiles_.index_of(int(row), int(column))]);
        if (++row == rows) {
          row = 0;
          ++column;
        }
      }
      store_words(to_ + at, pack, [](auto* to, const auto& word) { __stwb(to, word); });
    }
  }

  // Columns that have zeros behind the rows of the source: a vector by each thread.
  __device__ __forceinline__ void write_padded() const {
    const unsigned vectors = unsigned(rows_) / kWrites, size = vectors * unsigned(columns_);
    for (unsigned at = threadIdx.x; at < size; at += blockDim.x) {
      const unsigned column = at / vectors;
      const int row = int(at - column * vectors) * kWrites;
      // The rows of a vector are a group: nothing lies between them.
      const From* const own = shared_ + tiles_.index_of(row, int(column));
      Pack<To, kWrites> pack;
#pragma unroll
      for (int v = 0; v < kWrites; ++v) {
        pack[v] = copied<To>(row + v < given_ ? own[v << tiles_.shift] : From{});
      }
      To* const to = to_ + column * tiles_.rows + row;
      store_words(to, pack, [](auto* at, const auto& word) { __stwb(at, word); });
    }
  }

  const CopyTiles& tiles_;
  From* const shared_;
  int rows_, columns_;  // of the tile
  int given_;           // rows of it that the source has
  const From* from_;    // its first element
  To* to_;
};

template <typename From, typename To>
__global__ void __launch_bounds__(kCopyThreads, kCopyBlocks) image_copy_kernel(
    const From* from, To* to, const __grid_constant__ CopyTiles tiles) {
  wait_for_earlier_kernels();
  const CopiedTile<From, To> tile(from, to, tiles);
  tile.read_tile();
  end_row();
  wait_for_rows<0>();
  __syncthreads();
  tile.write_tile();
}

template <typename From, typename To>
cudaError_t launch_image_copy(const ImageCopy& a, cudaStream_t stream) {
  if ((a.to_rows != a.rows || a.exchanged) && !may_pad<To>(a)) return cudaErrorInvalidValue;
  if constexpr (sizeof(To) == 2) {
    if (a.exchanged) return launch_image_padding<From, To>(a, stream);
  }
  const CopyShape shape = image_copy_shape(a);
  return launch(
      image_copy_kernel<From, To>, dim3(shape.blocks), dim3(unsigned(shape.threads)),
      shape.tiles.elements() * sizeof(From), stream, static_cast<const From*>(a.from),
      static_cast<To*>(a.to), shape.tiles);
}

// T: the type of activations, to which elements of float are rounded.
template <typename T>
cudaError_t copy_rounded(const ImageCopy& a, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (a.from_bytes == 4 && a.to_bytes == 2) return launch_image_copy<float, T>(a, stream);
  }
  return cudaErrorInvalidValue;
}

// Copies the bits of elements, if they have as many bytes in both tensors.
inline cudaError_t copy_bits(const ImageCopy& a, cudaStream_t stream) {
  if (a.from_bytes == 4) return launch_image_copy<unsigned int, unsigned int>(a, stream);
  if (a.from_bytes == 2) return launch_image_copy<unsigned short, unsigned short>(a, stream);
  return cudaErrorInvalidValue;
}

}  // namespace fusegen

// The launcher, as launchers.h declares it. Dtypes: a template over the element types of a program,
// which has that of activations as T.
#define FUSEGEN_IMAGE_COPY_LAUNCHER(symbol, Dtypes)                                          \
  extern "C" int symbol(const fusegen::Call* call, const fusegen::ImageCopy* copy) {          \
    const auto stream = static_cast<cudaStream_t>(call->stream);                              \
    if (copy->from_bytes == copy->to_bytes) return fusegen::copy_bits(*copy, stream);         \
    return Modes::with(call->mode, [&](auto types) {                                          \
      using T = typename decltype(types)::template Of<Dtypes>::T;                             \
      return fusegen::copy_rounded<T>(*copy, stream);                                         \
    });                                                                                       \
  }
