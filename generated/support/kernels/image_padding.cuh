// A copy of positions, each with its channels, that gives them zeros as further channels:
// [positions, rows] becomes [positions, to_rows]. What is contiguous is padded by image_copy.cuh.
//
// A thread writes vectors of 16 bytes, and neighbouring threads write neighbouring ones. It reads
// what belongs there in vectors, halves of them or elements, as the channels allow.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../image_copy.h"
#include "../image_copy_shapes.cuh"
#include "../launch.cuh"
#include "../packs.cuh"
#include "../types.cuh"

namespace fusegen {

// An element as the result has it: rounded, or the same bits.
template <typename To, typename From>
__device__ __forceinline__ To copied(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else {
    return narrow<To>(value);
  }
}

// The channels of a vector of the result, of which `given` are there.
template <int kStep, typename To, typename From>
__device__ __forceinline__ Pack<To, 16 / sizeof(To)> padded_vector(const From* from, int given) {
  Pack<To, 16 / sizeof(To)> pack;
#pragma unroll
  for (int first = 0; first < int(16 / sizeof(To)); first += kStep) {
    Pack<From, kStep> part = {};
    if (first < given) {
      const auto loaded = load_words<kStep>(from + first, [](auto* word) { return read(word); });
      memcpy(&part, &loaded, sizeof(part));
    }
#pragma unroll
    for (int v = 0; v < kStep; ++v) pack[first + v] = copied<To>(part[v]);
  }
  return pack;
}

template <typename From, typename To>
__global__ void __launch_bounds__(kCopyThreads) image_padding_kernel(
    const From* from, To* to, const __grid_constant__ PaddingShape shape) {
  wait_for_earlier_kernels();
  constexpr int kWrites = 16 / sizeof(To);
  const int64_t first = int64_t(blockIdx.x) * shape.per_block, left = shape.positions - first;
  const unsigned positions = left < shape.per_block ? unsigned(left) : shape.per_block;
  from += first * shape.channels;
  to += first * shape.vectors * kWrites;
  for (unsigned at = threadIdx.x; at < positions * shape.vectors; at += blockDim.x) {
    const unsigned position = at / shape.vectors;
    const int channel = int(at - position * shape.vectors) * kWrites;
    const From* const own = from + position * shape.channels + channel;
    const int given = int(shape.channels) - channel;
    Pack<To, kWrites> pack;
    if (shape.step == kWrites) {
      pack = padded_vector<kWrites, To>(own, given);
    } else if (shape.step > 1) {
      pack = padded_vector<kWrites / 2, To>(own, given);
    } else {
      pack = padded_vector<1, To>(own, given);
    }
    store_words(
        to + int64_t(at) * kWrites, pack, [](auto* at, const auto& word) { __stwb(at, word); });
  }
}

// Whether there is a kernel for more rows than the source has.
template <typename To>
bool may_pad(const ImageCopy& a) {
  const int64_t vector = 16 / sizeof(To);
  return sizeof(To) == 2 && a.to_rows >= a.rows && a.to_rows % vector == 0 && aligned_to_16(a.to);
}

template <typename From, typename To>
cudaError_t launch_image_padding(const ImageCopy& a, cudaStream_t stream) {
  const PaddingShape shape = image_padding_shape(a);
  const unsigned blocks = unsigned(ceil_div(shape.positions, shape.per_block));
  return launch(
      image_padding_kernel<From, To>, dim3(blocks), dim3(kCopyThreads), 0, stream,
      static_cast<const From*>(a.from), static_cast<To*>(a.to), shape);
}

}  // namespace fusegen
