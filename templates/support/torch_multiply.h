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

// The values in contiguous memory of their own, in a dtype.
inline Tensor copied(const Tensor& tensor, ScalarType dtype) {
  const auto sizes = tensor.sizes();
  Tensor own = empty(tensor, dtype, Shape(sizes.data(), sizes.size()));
  return copy_(own, tensor);
}

// A tensor in a dtype, as autocast would cast it.
inline Tensor cast(const Tensor& tensor, ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : copied(tensor, dtype);
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
    return product_by_rows(x, transposed(weight), x.scalar_type(), added ? &*added : nullptr);
  }
  // dz W
  virtual Tensor input_gradient(const Tensor& dz, const Operands& of) const {
    const Tensor& weight = **of.weight;
    return by_rows_ ? product_by_rows(dz, weight, dz.scalar_type()) : glue::mm(dz, weight);
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
  // a b + bias in a dtype, where a has the rows of the batch, of a row-invariant op.
  Tensor product_by_rows(const Tensor& a, const Tensor& b, ScalarType dtype,
                         const Tensor* bias = nullptr) const {
    const Tensor result = empty(a, dtype, {a.size(0), b.size(1)});
    by_rows_(result, a, b, bias, /*add=*/false);
    return result;
  }

  const Multiply by_rows_;
};

}}  // namespace fusegen::glue
