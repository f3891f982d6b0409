// A gradient times a number on the device, in the memory of the gradient.
//
// The number is one of float32, and each product is rounded once: PyTorch rounds the number to the
// tensor's dtype first.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../call.h"
#include "../launch.cuh"
#include "../packs.cuh"
#include "../scale.h"
#include "../types.cuh"

namespace fusegen {

constexpr int kScaleThreads = 256;
constexpr int kMostScaleBlocks = 1 << 14;
constexpr int kScaleBytes = 16;  // that a thread has at a time

template <typename T>
__device__ __forceinline__ T scaled_by(T value, float factor, bool keeps_zeros) {
  const float wide = widen(value);
  return keeps_zeros && wide == 0 ? value : narrow<T>(wide * factor);
}

template <typename T>
__global__ void __launch_bounds__(kScaleThreads) scale_kernel(const __grid_constant__ Scale a) {
  constexpr int N = kScaleBytes / sizeof(T);
  wait_for_earlier_kernels();
  const float factor = read(a.factor);
  if (factor == 1) return;
  T* const values = static_cast<T*>(a.values);
  const bool is_aligned = reinterpret_cast<uintptr_t>(values) % sizeof(Pack<T, N>) == 0;
  const int64_t vectors = is_aligned ? a.count / N : 0;
  const int64_t thread = int64_t(blockIdx.x) * kScaleThreads + threadIdx.x;
  const int64_t threads = int64_t(gridDim.x) * kScaleThreads;
  for (int64_t i = thread; i < vectors; i += threads) {
    const auto loaded = load_words<N>(values + i * N, [](auto* word) { return read(word); });
    Pack<T, N> scaled;
#pragma unroll
    for (int v = 0; v < N; ++v) scaled[v] = scaled_by(loaded[v], factor, a.keeps_zeros);
    store_words(values + i * N, scaled, [](auto* word, auto value) { *word = value; });
  }
  for (int64_t i = vectors * N + thread; i < a.count; i += threads) {
    values[i] = scaled_by(read(values + i), factor, a.keeps_zeros);
  }
}

template <typename T>
cudaError_t launch_scale(const Call& call, const Scale& a) {
  constexpr int64_t kEach = kScaleThreads * kScaleBytes / sizeof(T);
  const int64_t blocks = (a.count + kEach - 1) / kEach;
  return launch(
      scale_kernel<T>, dim3(unsigned(blocks < kMostScaleBlocks ? blocks : kMostScaleBlocks)),
      dim3(kScaleThreads), 0, static_cast<cudaStream_t>(call.stream), a);
}

}  // namespace fusegen

// The launcher, as launchers.h declares it.
#define FUSEGEN_SCALE_LAUNCHER(symbol)                                                \
  extern "C" int symbol(const fusegen::Call* call, const fusegen::Scale* arguments) { \
    return arguments->dtype == fusegen::Dtype::kFloat32                               \
        ? fusegen::launch_scale<float>(*call, *arguments)                             \
        : fusegen::launch_scale<__nv_bfloat16>(*call, *arguments);                    \
  }
