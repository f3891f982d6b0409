// Products of float32 matrices in the precision that a module wants.
#pragma once

#include "contraction/contraction.h"
#include "torch_multiply.h"
#include "torch_narrow.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// As in support/precisions.py, which says what they mean.
enum class Precision : int64_t { kIeee, kFp32Split, kBf16, kFp16 };

// So many elements of the contraction index are added up by a tensor core before they are added to
// a float32 sum: the sums of Hopper's tensor cores are truncated, not rounded.
constexpr int64_t kSplitChunk = 256;

inline PiecesLayout layout_of(const Tensor& matrix, bool by_columns) {
  return {matrix.size(0), matrix.size(1), by_columns};
}

inline const float* floats(const Tensor& tensor) { return static_cast<const float*>(read(tensor)); }

inline Tensor packed(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : contiguous(tensor);
}

// The pieces of a float32 matrix. folded: null, or the pieces by rows of the matrix `other`, whose
// exponents the values are divided by.
inline Tensor pieces_of(const Tensor& values, bool by_columns, const Tensor* other,
                    const Tensor* folded, void* stream, ErrorText error_text) {
  const PiecesLayout layout = layout_of(values, by_columns);
  const PiecesLayout folded_layout = layout_of(other ? *other : values, false);
  const Tensor pieces = empty(values, ScalarType::Half, {layout.halves()});
  check_launch("fusegen_split",
               fusegen_split(floats(values), &layout, folded ? read(*folded) : nullptr,
                             &folded_layout, write(pieces), stream),
               error_text);
  return pieces;
}

// A matrix and its pieces, as one operand of a product.
struct SplitOperand {
  Tensor values, pieces;
  bool by_columns, transposed;

  // The high pieces (0) or the low ones (1), as they are multiplied: without the padding of rows.
  Tensor plane(int64_t index) const {
    const PiecesLayout layout = layout_of(values, by_columns);
    const Tensor all = matrix_view(pieces, {layout.rows, layout.columns}, {layout.stride(), 1},
                            index * layout.plane());
    return transposed ? glue::transposed(all) : all;
  }
};

inline SplitProduct call_of(ProductKind kind, std::array<int64_t, 3> sizes,
                            const SplitOperand& left, const SplitOperand& right,
                            const Tensor& result, void* stream, bool row_invariant) {
  return {kind, sizes[0], sizes[1], sizes[2], floats(left.values), floats(right.values),
          read(left.pieces), read(right.pieces), static_cast<float*>(write(result)), stream,
          row_invariant};
}

// left right, by our kernel where the device can run it, else by the library.
inline Tensor split_product(ProductKind kind, std::array<int64_t, 3> sizes,
                            const SplitOperand& left, const SplitOperand& right, void* stream,
                            ErrorText error_text, Multiply by_rows = nullptr) {
  const Tensor left_high = left.plane(0), right_high = right.plane(0);
  const int64_t rows = left_high.size(0), depth = left_high.size(1), columns = right_high.size(1);
  const Tensor result = empty(left.values, ScalarType::Float, {rows, columns});
  const SplitProduct product =
      call_of(kind, sizes, left, right, result, stream, by_rows != nullptr);
  if (fusegen_split_has_kernel()) {
    check_launch("fusegen_split_product", fusegen_split_product(&product), error_text);
    return result;
  }
  const auto multiply = [&](const Tensor& to, const Tensor& a, const Tensor& b, bool add) {
    by_rows ? by_rows(to, a, b, nullptr, add) : multiply_narrow(to, a, b, add);
  };
  for (int64_t first = 0; first < depth; first += kSplitChunk) {
    const int64_t length = std::min(kSplitChunk, depth - first);
    multiply(result, part(left_high, 1, first, length), part(right_high, 0, first, length),
             /*add=*/first > 0);
  }
  const Tensor cross = empty(left.values, ScalarType::Float, {rows, columns});
  multiply(cross, left_high, right.plane(1), /*add=*/false);
  multiply(cross, left.plane(1), right_high, /*add=*/true);
  check_launch("fusegen_split_finish", fusegen_split_finish(&product, floats(cross)), error_text);
  return result;
}

// The products of one call of an op, in its precision.
class PreciseProducts final : public Products {
 public:
  PreciseProducts(const Arguments& args, int64_t precision, ScalarType operands, void* stream,
                  ErrorText error_text, Multiply by_rows)
      : Products(by_rows), args_(args), precision_(Precision(precision)), stream_(stream),
        error_text_(error_text) {
    args.within("precision", precision, 0, operands == ScalarType::Float ? 3 : 0);
  }

  Tensor forward(const Operands& of, const Tensor* bias) const override {
    if (precision_ == Precision::kIeee) return Products::forward(of, bias);
    if (!are_split()) return product_of_rows(rounded(**of.x), transposed(rounded(**of.weight)));
    return split_product(ProductKind::kForward, forward_sizes(of), x(of, false), weight(of, true),
                         stream_, error_text_, by_rows_);
  }

  Tensor input_gradient(const Tensor& dz, const Operands& of) const override {
    if (precision_ == Precision::kIeee) return Products::input_gradient(dz, of);
    if (!are_split()) return product_of_rows(rounded(dz), rounded(**of.weight));
    const SplitOperand right = weight(of, false);
    return split_product(ProductKind::kInputGradient,
                         {dz.size(0), dz.size(1), (*of.weight)->size(1)},
                         gradient(dz, right, false), right, stream_, error_text_, by_rows_);
  }

  Tensor weight_gradient(const Tensor& dz, const Operands& of) const override {
    if (precision_ == Precision::kIeee) return Products::weight_gradient(dz, of);
    if (!are_split()) return narrow_product(transposed(rounded(dz)), rounded(**of.x));
    const SplitOperand right = x(of, false);
    return split_product(ProductKind::kWeightGradient, {dz.size(0), dz.size(1), (*of.x)->size(1)},
                         gradient(dz, right, true), right, stream_, error_text_);
  }

  bool are_plain() const override { return precision_ == Precision::kIeee; }
  bool are_split() const override { return precision_ == Precision::kFp32Split; }

  int launch_forward(const Operands& of, const Tensor& product, ProductLauncher launcher,
                     const Call& call, const void* arguments) const override {
    const SplitOperand left = x(of, false), right = weight(of, true);
    const SplitProduct split =
        call_of(ProductKind::kForward, forward_sizes(of), left, right, product, stream_,
                by_rows_ != nullptr);
    return launcher(&call, arguments, &split);
  }

 private:
  // a b of 16-bit matrices in float32, where a has the rows of the batch.
  Tensor product_of_rows(const Tensor& a, const Tensor& b) const {
    return by_rows_ ? product_by_rows(a, b, ScalarType::Float) : narrow_product(a, b);
  }
  static std::array<int64_t, 3> forward_sizes(const Operands& of) {
    return {(*of.x)->size(0), (*of.weight)->size(0), (*of.x)->size(1)};
  }
  SplitOperand x(const Operands& of, bool transposed) const {
    return operand("operand_pieces", **of.x, *of.x_pieces, transposed);
  }
  SplitOperand weight(const Operands& of, bool transposed) const {
    return operand("weight_pieces", **of.weight, *of.weight_pieces, transposed);
  }
  SplitOperand operand(const char* name, const Tensor& values, const OptionalTensor& pieces,
                       bool transposed) const {
    const Tensor& there = args_.required(name, pieces);
    args_.matrix(name, there, ScalarType::Half, {layout_of(values, false).halves()});
    return {packed(values), there, false, transposed};
  }

  // dz, with the exponents of the other operand's rows folded into its pieces: those are of the
  // contraction index, and could not be undone in the result.
  SplitOperand gradient(const Tensor& dz, const SplitOperand& other, bool by_columns) const {
    const Tensor values = packed(dz);
    return {values,
            pieces_of(values, by_columns, &other.values, &other.pieces, stream_, error_text_),
            by_columns, /*transposed=*/by_columns};
  }

  Tensor rounded(const Tensor& matrix) const {
    const ScalarType dtype =
        precision_ == Precision::kBf16 ? ScalarType::BFloat16 : ScalarType::Half;
    return copied(matrix, dtype);
  }

  const Arguments& args_;
  const Precision precision_;
  void* const stream_;
  const ErrorText error_text_;
};

inline std::unique_ptr<Products> in_precision(
    const Arguments& args, int64_t precision, ScalarType operands, void* stream,
    ErrorText error_text, Multiply by_rows) {
  return std::make_unique<PreciseProducts>(args, precision, operands, stream, error_text, by_rows);
}

// The pieces of an operand of a forward product, where the precision has such.
inline OptionalTensor pieces_by_rows(
    const Tensor& values, int64_t precision, ErrorText error_text) {
  if (Precision(precision) != Precision::kFp32Split) return std::nullopt;
  const Launch launch(values);
  return pieces_of(packed(values), false, nullptr, nullptr, launch.stream, error_text);
}

// An op of a package: the pieces of a float32 matrix by its rows, see contraction/contraction.h.
inline Tensor split(const char* name, ErrorText error_text, const Tensor& values) {
  const Arguments args(name, "values", values);
  const Tensor matrix = args.input("values", values, ScalarType::Float, {kAny, kAny});
  const Launch launch(values);
  return pieces_of(matrix, /*by_columns=*/false, nullptr, nullptr, launch.stream, error_text);
}

}}  // namespace fusegen::glue
