// A product of two matrices as its kernels see it.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "contraction.h"
#include "pieces.cuh"

namespace fusegen {

// A product result[i][j] = sum over c of left(i, c) right(j, c), and what is known of its operands.
struct Product {
  int64_t rows, columns, sum;
  const float *left, *right;
  int64_t left_row, left_sum, right_row, right_sum;  // strides
  const int *left_largest, *right_largest;  // of i and of j; null: there is no exponent
  const unsigned *left_lost, *right_lost;   // of i and of j; null: of all together
  const unsigned long long *left_lost_in_all, *right_lost_in_all;
  float* result;
  bool row_invariant;

  __device__ __forceinline__ int exponent(int64_t i, int64_t j) const {
    return row_exponent(__ldg(left_largest + i)) +
           (right_largest == nullptr ? 0 : row_exponent(__ldg(right_largest + j)));
  }
};

// A product with the pieces of both operands.
struct Operation {
  Product product;
  Pieces left, right;
};

inline Operation operation_of(const SplitProduct& p) {
  PiecesLayout left_layout{p.rows, p.in_features, false};
  PiecesLayout right_layout{p.channels, p.in_features, false};
  if (p.kind == ProductKind::kInputGradient) left_layout = {p.rows, p.channels, false};
  if (p.kind == ProductKind::kWeightGradient) {
    left_layout = {p.rows, p.channels, true};
    right_layout = {p.rows, p.in_features, false};
  }
  const Pieces left = pieces_of(p.left_pieces, left_layout);
  const Pieces right = pieces_of(p.right_pieces, right_layout);
  Product product{};
  product.left = p.left;
  product.right = p.right;
  product.left_largest = left.largest;
  product.left_lost = left.lost;
  product.left_lost_in_all = left.lost_in_all;
  product.right_lost_in_all = right.lost_in_all;
  product.result = p.result;
  product.row_invariant = p.row_invariant != 0;
  switch (p.kind) {
    case ProductKind::kForward:
      product.rows = p.rows, product.columns = p.channels, product.sum = p.in_features;
      product.left_row = product.right_row = p.in_features;
      product.left_sum = product.right_sum = 1;
      product.right_largest = right.largest;
      product.right_lost = right.lost;
      break;
    case ProductKind::kInputGradient:
      product.rows = p.rows, product.columns = p.in_features, product.sum = p.channels;
      product.left_row = p.channels, product.left_sum = 1;
      product.right_row = 1, product.right_sum = p.in_features;
      break;
    default:
      product.rows = p.channels, product.columns = p.in_features, product.sum = p.rows;
      product.left_row = 1, product.left_sum = p.channels;
      product.right_row = 1, product.right_sum = p.in_features;
  }
  return {product, left, right};
}

}  // namespace fusegen
