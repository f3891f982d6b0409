// Products of 16-bit matrices that come out in float32.
#pragma once

#include "torch_products.h"

#include <array>
#include <cstdint>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// So many elements from `first` on along one dimension of a matrix, over the same memory.
inline Tensor part(const Tensor& matrix, int64_t dim, int64_t first, int64_t length) {
  std::array<int64_t, 2> sizes{matrix.size(0), matrix.size(1)};
  sizes[dim] = length;
  return matrix_view(matrix, sizes, {matrix.stride(0), matrix.stride(1)},
                     first * matrix.stride(dim));
}

#ifdef FUSEGEN_EMULATE

inline Tensor as_float(const Tensor& matrix) {
  Tensor result = empty(matrix, ScalarType::Float, {matrix.size(0), matrix.size(1)});
  return torch::stable::copy_(result, matrix);
}

// result = a b, or result + a b, where result is float32 and contiguous.
inline void multiply_narrow(const Tensor& result, const Tensor& a, const Tensor& b, bool add) {
  const Tensor product = mm(as_float(a), as_float(b));
  const auto* from = static_cast<const float*>(read(product));
  auto* to = static_cast<float*>(write(result));
  const int64_t count = result.size(0) * result.size(1);
  for (int64_t i = 0; i < count; ++i) to[i] = add ? to[i] + from[i] : from[i];
}

#else

// What cuBLAS calls these, in every version since CUDA 11.
constexpr int kCublasFloat = 0, kCublasHalf = 2, kCublasBFloat16 = 14;  // cudaDataType_t
constexpr int kCublasComputeFloat = 68;                                 // cublasComputeType_t
constexpr int kCublasPlain = 0, kCublasTransposed = 1;                  // cublasOperation_t
constexpr int kCublasDefault = -1;                                      // cublasGemmAlgo_t

using CublasGemmEx = int (*)(void* handle, int op_a, int op_b, int m, int n, int k,
                             const void* alpha, const void* a, int dtype_a, int a_stride,
                             const void* b, int dtype_b, int b_stride, const void* beta, void* c,
                             int dtype_c, int c_stride, int compute, int algorithm);

// A matrix as cuBLAS sees it, which has columns where we have rows.
struct CublasOperand {
  explicit CublasOperand(const Tensor& matrix)
      : data(read(matrix)),
        type(matrix.scalar_type() == ScalarType::Half ? kCublasHalf : kCublasBFloat16) {
    const bool by_rows = matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1);
    op = by_rows ? kCublasPlain : kCublasTransposed;
    stride = int(matrix.stride(by_rows ? 0 : 1));
  }
  const void* data;
  int type, op, stride;
};

// result = a b, or result + a b, where result is float32 and contiguous.
//
// By cuBLAS itself, through torch's handle. aten::addmm.dtype takes a Scalar, which calls of the
// dispatcher by the stable ABI cannot pass; aten::mm.dtype adds nothing, so that each sum would
// take another pass over the result.
inline void multiply_narrow(const Tensor& result, const Tensor& a, const Tensor& b, bool add) {
  using GetHandle = AOTITorchError (*)(void**);
  static const auto get_handle = find<GetHandle>("torch_get_current_cuda_blas_handle");
  static const auto gemm = find<CublasGemmEx>("cublasGemmEx");  // libtorch_cuda.so depends on it
  if (!get_handle || !gemm) fail("fusegen", "this version of torch gives no access to cuBLAS");
  void* handle = nullptr;
  check_torch("fusegen: the handle of cuBLAS", get_handle(&handle));
  const CublasOperand left(b), right(a);  // result^T = b^T a^T
  const float one = 1, kept = add ? 1 : 0;
  const int rows = int(result.size(0)), columns = int(result.size(1)), depth = int(a.size(1));
  const int status = gemm(handle, left.op, right.op, columns, rows, depth, &one, left.data,
                          left.type, left.stride, right.data, right.type, right.stride, &kept,
                          write(result), kCublasFloat, columns, kCublasComputeFloat,
                          kCublasDefault);
  if (status != 0) fail("cublasGemmEx", "cuBLAS status ", status);
}

#endif

// a b of 16-bit matrices in float32.
inline Tensor narrow_product(const Tensor& a, const Tensor& b) {
  const Tensor result = empty(a, ScalarType::Float, {a.size(0), b.size(1)});
  multiply_narrow(result, a, b, /*add=*/false);
  return result;
}

}}  // namespace fusegen::glue
