// Matrix products that are nothing but calls of ATen are in torch_glue.h.
#pragma once

#include "torch_glue.h"

#include <array>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// A matrix over the memory of a tensor, from its element `offset` on.
inline Tensor matrix_view(const Tensor& tensor, std::array<int64_t, 2> sizes,
                          std::array<int64_t, 2> strides, int64_t offset) {
  return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset);
}

inline Tensor copy_(Tensor& to, const Tensor& from) { return to.copy_(from); }

}}  // namespace fusegen::glue
