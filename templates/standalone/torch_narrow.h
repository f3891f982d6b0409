// Products of 16-bit matrices that come out in float32, where no kernel of ours makes them: exact
// products of float32, which the forward method asks for on no GPU.
#pragma once

#include "torch_products.h"

#include <array>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// So many elements from `first` on along one dimension of a matrix, over the same memory.
inline Tensor part(const Tensor& matrix, int64_t dim, int64_t first, int64_t length) {
  return matrix.narrow(dim, first, length);
}

// result = a b, or result + a b, where result is float32 and contiguous.
inline void multiply_narrow(const Tensor& result, const Tensor& a, const Tensor& b, bool add) {
  const Tensor product = at::mm(a.to(at::kFloat), b.to(at::kFloat));
  add ? result.add_(product) : result.copy_(product);
}

inline Tensor narrow_product(const Tensor& a, const Tensor& b) {
  return at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

}}  // namespace fusegen::glue
