// What contraction.cu does for the bindings: float32 products from tensor cores of 16 bits.
//
// Each float32 matrix is split into two of fp16, its pieces: x 2^e = high + low 2^-11, with an
// exponent e for each row or for each column. The product of two matrices is high high' plus
// (high low' + low high') 2^-11, times 2^-e 2^-e'. docs/numerics.md says what that holds to.
#pragma once

#include <cstdint>

namespace fusegen {

// Where the pieces of a matrix lie in one array of fp16: the high ones, the low ones, then of each
// row (or column) the exponent of its largest element and how many of its elements the pieces do
// not hold, as integers of 32 bits, and the sum of these counts, of 64 bits.
struct PiecesLayout {
  int64_t rows, columns;
  bool by_columns;  // whether the exponents are those of columns

  int64_t stride() const { return (columns + 7) / 8 * 8; }  // of a row: 16 bytes, as copies want it
  int64_t plane() const { return rows * stride(); }
  int64_t scales() const { return by_columns ? columns : rows; }
  int64_t halves() const { return 2 * (plane() + 2 * scales() + 2); }
};

// y [rows, channels] = x W^T; dx [rows, in_features] = dz W; dW [channels, in_features] = dz^T x.
enum class ProductKind : int64_t { kForward, kInputGradient, kWeightGradient };

// left, right: x and W; dz and W; dz and x: float32, contiguous, with their pieces. Those of x and
// W are by rows. Those of dz are by rows for dx, with the exponents of W's rows folded in, and by
// columns for dW, with those of x's rows. row_invariant: whether no other row may have a part in
// how a row is computed.
struct SplitProduct {
  ProductKind kind;
  int64_t rows, channels, in_features;
  const float *left, *right;
  const void *left_pieces, *right_pieces;
  float* result;
  void* stream;
  int64_t row_invariant;
};

}  // namespace fusegen

// All return a cudaError_t, but fusegen_split_has_kernel().
extern "C" {
// Writes the pieces of values [rows, columns], which is contiguous. folded: null, or pieces by rows
// of a matrix with as many rows as `values` has columns (rows, where layout.by_columns): values are
// divided by 2^e for the exponents there, exactly.
int fusegen_split(
    const float* values, const fusegen::PiecesLayout* layout, const void* folded,
    const fusegen::PiecesLayout* folded_layout, void* pieces, void* stream);

// Whether fusegen_split_product() can run on the current device, which needs sm_90a.
int fusegen_split_has_kernel();

// The product, by a kernel on tensor cores.
int fusegen_split_product(const fusegen::SplitProduct* product);

// The rest of a product that the library made: result = (result + cross 2^-11) 2^-e 2^-e', and what
// pieces do not hold. result: high high' on entry. cross: high low' + low high'.
int fusegen_split_finish(const fusegen::SplitProduct* product, const float* cross);

}
