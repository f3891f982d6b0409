// The shapes of tensors of images, in one of two forms.
//
//            inner: a convolution's         outer: what comes from outside the chain
//            result, its gradient           or goes there, gradients of that
//   rows     [rows, channels]               [rows, channels]
//   images   [batch, positions, channels]   [batch, channels, positions]
//
// A row is a position of an element of the batch: the left column is the same in memory. The first
// argument of an op tells the form of all.
#pragma once

#include "torch_glue.h"

#include <array>
#include <cstdint>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

class Images {
 public:
  static Images of_inner(const Tensor& first) { return Images(first, 2, 1); }
  static Images of_outer(const Tensor& first) { return Images(first, 1, 2); }

  int64_t rows() const { return inner_[0] * (are_rows_ ? 1 : inner_[1]); }
  int64_t channels() const { return are_rows_ ? inner_[1] : inner_[2]; }
  // Of an image; 0 where all tensors are rows.
  int64_t positions() const { return are_rows_ ? 0 : inner_[1]; }
  Shape inner() const { return shape(inner_); }
  Shape outer() const { return shape(are_rows_ ? inner_ : outer_); }

 private:
  // channels, positions: the dimensions of these in an image.
  Images(const Tensor& first, int channels, int positions) : are_rows_(first.dim() != 3) {
    if (are_rows_) {
      inner_ = {first.size(0), first.size(1), 0};
    } else {
      inner_ = {first.size(0), first.size(positions), first.size(channels)};
      outer_ = {inner_[0], inner_[2], inner_[1]};
    }
  }
  Shape shape(const std::array<int64_t, 3>& sizes) const {
    return Shape(sizes.data(), are_rows_ ? 2 : 3);
  }

  bool are_rows_;
  std::array<int64_t, 3> inner_, outer_;
};

}}  // namespace fusegen::glue
