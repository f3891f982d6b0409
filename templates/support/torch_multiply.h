// The matrix products of a call: by the library, unless a package multiplies in several precisions.
#pragma once

#include "torch_arguments.h"
#include "torch_op.h"
#include "torch_products.h"

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// The operands of x W^T, and their pieces: of float32 in the precision fp32_split alone. Null where
// an op has none.
struct Operands {
  const OptionalTensor *x, *weight, *x_pieces, *weight_pieces;
};

// A vector in another dtype, as autocast would cast it.
inline Tensor cast(const Tensor& vector, ScalarType dtype) {
  if (vector.scalar_type() == dtype) return vector;
  Tensor result = empty(vector, dtype, {vector.size(0)});
  return copy_(result, vector);
}

class Products {
 public:
  // by_rows: makes those with the rows of the batch, of row-invariant ops.
  explicit Products(Multiply by_rows = nullptr) : by_rows_(by_rows) {}
  virtual ~Products() = default;
  // x W^T, and the bias where the library is to add it: never to a product of float32.
  virtual Tensor forward(const Operands& of, const Tensor* bias) const {
    const Tensor &x = **of.x, &weight = **of.weight;
    const OptionalTensor added = bias ? OptionalTensor(cast(*bias, x.scalar_type())) : std::nullopt;
    if (!by_rows_) return glue::linear(x, weight, added);
    const Tensor result = empty(x, x.scalar_type(), {x.size(0), weight.size(0)});
    by_rows_(result, x, transposed(weight), added ? &*added : nullptr, /*add=*/false);
    return result;
  }
  // dz W
  virtual Tensor input_gradient(const Tensor& dz, const Operands& of) const {
    const Tensor& weight = **of.weight;
    if (!by_rows_) return glue::mm(dz, weight);
    const Tensor result = empty(dz, dz.scalar_type(), {dz.size(0), weight.size(1)});
    by_rows_(result, dz, weight, nullptr, /*add=*/false);
    return result;
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

 protected:
  const Multiply by_rows_;
};

}}  // namespace fusegen::glue
