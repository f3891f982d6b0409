// The end of a product that the library made of pieces.
#pragma once

#include <cstdint>

#include "../launch.cuh"
#include "product.cuh"

namespace fusegen {

// result = (result + cross 2^-11) 2^-e, for products that the library made.
constexpr int kCombineThreads = 256;
__global__ void __launch_bounds__(kCombineThreads)
    combine_product(const __grid_constant__ Product p, const float* cross) {
  wait_for_earlier_kernels();
  const int64_t count = p.rows * p.columns, step = int64_t(gridDim.x) * kCombineThreads;
  for (int64_t n = int64_t(blockIdx.x) * kCombineThreads + threadIdx.x; n < count; n += step) {
    const float sum = fmaf(cross[n], kLowUnit, p.result[n]);
    p.result[n] = scaled(sum, -p.exponent(n / p.columns, n % p.columns));
  }
}

inline cudaError_t launch_combine(
    const Product& product, const float* cross, cudaStream_t stream) {
  const int64_t blocks = (product.rows * product.columns + kCombineThreads - 1) / kCombineThreads;
  return launch(combine_product, dim3(unsigned(blocks < 2048 ? blocks : 2048)),
                dim3(kCombineThreads), 0, stream, product, cross);
}

}  // namespace fusegen
