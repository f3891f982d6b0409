// The matrix products of a call: by the library, unless a package multiplies in several precisions.
#pragma once

#include "torch_arguments.h"
#include "torch_products.h"

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// The operands of x W^T, and their pieces: of float32 in the precision fp32_split alone. Null where
// an op has none.
struct Operands {
  const OptionalTensor *x, *weight, *x_pieces, *weight_pieces;
};

class Products {
 public:
  virtual ~Products() = default;
  // x W^T, and the bias where the library is to add it: never to a product of float32.
  virtual Tensor forward(const Operands& of, const Tensor* bias) const {
    return glue::linear(**of.x, **of.weight, bias ? OptionalTensor(*bias) : std::nullopt);
  }
  // dz W
  virtual Tensor input_gradient(const Tensor& dz, const Operands& of) const {
    return glue::mm(dz, **of.weight);
  }
  // dz^T x
  virtual Tensor weight_gradient(const Tensor& dz, const Operands& of) const {
    return glue::mm(glue::transposed(dz), **of.x);
  }
  // Whether they are products of the operands as they are, in the operands' dtype.
  virtual bool are_plain() const { return true; }
  // Whether a kernel of ours may make the product, with a launcher that takes it.
  virtual bool are_split() const { return false; }
  virtual int launch_forward(const Operands&, const Tensor& /*product*/, ProductLauncher,
                             const Call&, const void* /*arguments*/) const {
    return 0;
  }
};

}}  // namespace fusegen::glue
