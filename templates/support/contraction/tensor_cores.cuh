// A product of pieces on Hopper's tensor cores.
//
// One warpgroup copies tiles of the four piece matrices to shared memory, stage by stage; two
// others multiply them, 64 x 128 elements of the result each. The tensor core cuts off what falls
// below its accumulator, which would grow to a bias, so the products of high pieces are added to a
// sum in ordinary float32 every kPromoted terms.
//
// Two blocks with neighbouring tiles are a cluster. The operand that they share comes from the L2
// cache once: each copies one half of the tile to both. Without that the cache would be too slow.
#pragma once

#include <algorithm>

#include "../launch.cuh"
#include "recheck.cuh"
#include "tiles.cuh"

#if defined(__CUDACC__)
#include "pipeline.cuh"
#else
#include "emulated_pipeline.cuh"
#endif

namespace fusegen {

// E: see epilogue.cuh.
template <bool kLeftTransposed, bool kRightTransposed, class E>
__global__ void __launch_bounds__(kProductThreads, 1)
    multiply_pieces(const __grid_constant__ PieceMaps maps, const __grid_constant__ Product p,
                    const __grid_constant__ E epilogue, Shared shared) {
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wait_for_earlier_kernels();
  const int rank = blockIdx.z, group = threadIdx.x / 128;
  const Tiles tiles(p, shared);
  Pipeline<kLeftTransposed, kRightTransposed> pipeline(maps, p, shared, rank);
  if (group == 0) {
    pipeline.begin_producer();
    for (int tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
      pipeline.copy(tiles.place(tile, rank));
    }
  } else {
    pipeline.begin_consumer();
    const int half = group - 1;  // of the tile's rows
    for (int tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
      float sum[64], cross[64];
      const TilePlace at = tiles.place(tile, rank);
      pipeline.accumulate(at, half, sum, cross);
      const Fragment mine(at.row + 64 * half, at.column);
      finish_sums(p, mine, sum, cross);
      epilogue.tile(p, mine, sum);
    }
  }
  pipeline.end();
#endif
}

inline int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

#if defined(__CUDACC__)
// It has static shared memory in code for sm_90a alone.
template <int = 0>
__global__ void has_instructions_of_sm_90a() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ volatile int there;
  there = 1;
#endif
}

// Whether the code that runs here is that for sm_90a, where there may be code for sm_90 beside it.
inline bool runs_code_of_sm_90a() {
  static const bool runs = [] {
    cudaFuncAttributes found{};
    const cudaError_t error = cudaFuncGetAttributes(&found, has_instructions_of_sm_90a<>);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error == cudaSuccess && found.sharedSizeBytes > 0;
  }();
  return runs;
}
#else
inline bool runs_code_of_sm_90a() { return true; }
#endif

// Whether this file has the kernel for the current device. The emulator has it unless it is told to
// take the library.
inline int has_tensor_core_kernel() {
#if defined(FUSEGEN_SM_90A) || !(defined(__CUDACC__) || defined(FUSEGEN_LIBRARY_PRODUCT))
  return compute_capability() == 90 && runs_code_of_sm_90a();
#else
  return 0;
#endif
}

template <bool kLeftTransposed, bool kRightTransposed, class E>
cudaError_t launch_tensor_cores(const Operation& o, const E& epilogue, cudaStream_t stream) {
  PieceMaps maps{};
  if (explanation != nullptr) {
    explanation->next("product", 0, 0);
  } else {
    const cudaError_t error = describe_pieces<kLeftTransposed, kRightTransposed>(o, maps);
    if (error != cudaSuccess) return error;
  }
  const Shared shared = shared_of(o.product);
  const int tiles = Tiles(o.product, shared).count(), clusters = std::max(1, multiprocessors() / 2);
  return launch(multiply_pieces<kLeftTransposed, kRightTransposed, E>,
                dim3(unsigned(tiles < clusters ? tiles : clusters), 1, 2), dim3(kProductThreads),
                kProductShared, stream, maps, o.product, epilogue, shared);
}

// y = x W^T with an epilogue.
template <class E>
cudaError_t launch_forward(const Operation& o, const E& epilogue, cudaStream_t stream) {
  const cudaError_t error = launch_tensor_cores<false, false>(o, epilogue, stream);
  if (explanation != nullptr) explanation->next("recheck", 0, 0);
  return error != cudaSuccess ? error : launch_recheck(o.product, epilogue, stream);
}

}  // namespace fusegen
