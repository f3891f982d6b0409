// Descriptions of matrices for bulk tensor copies.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>

namespace fusegen {

// The driver's function, which is found at run time: extensions are not linked with the driver.
using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
inline EncodeTensorMap find_encode_tensor_map() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess
             ? reinterpret_cast<EncodeTensorMap>(found)
             : nullptr;
}

// A matrix of fp16, of which boxes of 64 neighbours in `box_rows` rows are copied, with a swizzle
// of 128 bytes. stride: elements between rows, a multiple of 8.
inline cudaError_t describe_matrix(
    CUtensorMap* map, const void* data, int64_t rows, int64_t columns, int64_t stride,
    unsigned box_rows) {
  static const EncodeTensorMap encode = find_encode_tensor_map();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[2] = {cuuint64_t(columns), cuuint64_t(rows)};
  const cuuint64_t strides[1] = {cuuint64_t(stride) * 2};
  const cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
  const CUresult result = encode(
      map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(data), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace fusegen
