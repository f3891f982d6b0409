// Matrix products of libtorch: the contractions before the kernels.
#pragma once

#include "torch_glue.h"

#include <array>
#include <cstdint>
#include <vector>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

#ifdef FUSEGEN_EMULATE
#define FUSEGEN_ATEN(op) "aoti_torch_cpu_" op
#else
#define FUSEGEN_ATEN(op) "aoti_torch_cuda_" op
#endif

// Calls an ATen op with one result through the dispatcher, as Python would.
template <class... Values>
inline Tensor aten(const char* op, const Values&... values) {
  std::array<StableIValue, sizeof...(Values)> stack{torch::stable::detail::from(values)...};
  check_torch(op, torch_call_dispatcher(op, "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

inline bool is_narrow(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
}

// A matrix over the memory of a tensor, from its element `offset` on.
inline Tensor matrix_view(const Tensor& tensor, std::array<int64_t, 2> sizes,
                   std::array<int64_t, 2> strides, int64_t offset) {
  AtenTensorHandle result = nullptr;
  check_torch("aten::as_strided", aoti_torch__reinterpret_tensor(tensor.get(), 2, sizes.data(),
                                                                 strides.data(), offset, &result));
  return Tensor(result);
}

// The matrix with its axes exchanged, over the same memory.
inline Tensor transposed(const Tensor& matrix) {
  return matrix_view(matrix, {matrix.size(1), matrix.size(0)},
                     {matrix.stride(1), matrix.stride(0)}, 0);
}

// a b. By the device's own function where this version of torch exports it: no gradient is to be
// recorded here, and the way through the dispatcher takes longer than the launch.
inline Tensor mm(const Tensor& a, const Tensor& b) {
  using Product = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle);
  static const auto product = find<Product>(FUSEGEN_ATEN("mm_out"));
  if (!product) return aten("aten::mm", a, b);
  Tensor result = empty(a, a.scalar_type(), {a.size(0), b.size(1)});
  check_torch("aten::mm", product(result.get(), a.get(), b.get()));
  return result;
}

// bias + a b, the bias once for each row.
inline Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  using Product = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle,
                                     AtenTensorHandle, double, double);
  static const auto product = find<Product>(FUSEGEN_ATEN("addmm_out"));
  if (!product) return aten("aten::linear", a, transposed(b), OptionalTensor(bias));
  Tensor result = empty(a, a.scalar_type(), {a.size(0), b.size(1)});
  check_torch("aten::addmm", product(result.get(), bias.get(), a.get(), b.get(), 1.0, 1.0));
  return result;
}

// result = a b, or result + a b, of one dtype.
inline void add_mm(const Tensor& result, const Tensor& a, const Tensor& b, bool add) {
  using Product = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle,
                                     AtenTensorHandle, double, double);
  static const auto product = find<Product>(FUSEGEN_ATEN("addmm_out"));
  if (!product) fail("aten::addmm", "this version of torch does not export it");
  check_torch("aten::addmm",
              product(result.get(), result.get(), a.get(), b.get(), add ? 1.0 : 0.0, 1.0));
}

// The gradient of a tensor of `own` rows, of which each is that of a block of rows, or comes again
// in each block: the sum of theirs, by PyTorch, rounded once to its dtype.
inline Tensor sum_of_rows(const Tensor& full, ScalarType dtype, int64_t own, bool again) {
  const int64_t blocks = full.size(0) / own;
  const std::vector<int64_t> sizes{again ? blocks : own, again ? own : blocks, full.size(1)};
  const std::vector<int64_t> dim{again ? 0 : 1};
  const Tensor sum = torch::stable::sum(torch::stable::view(full, sizes), dim);
  if (sum.scalar_type() == dtype) return sum;
  // PyTorch's sum of a given dtype would round the terms to it.
  Tensor rounded = empty(sum, dtype, {own, full.size(1)});
  return torch::stable::copy_(rounded, sum);
}

// x W^T, plus the bias if there is one, of the dtype of x.
inline Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  return bias ? addmm(*bias, x, transposed(weight)) : mm(x, transposed(weight));
}

}}  // namespace fusegen::glue
