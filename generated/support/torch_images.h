// The shapes of tensors of images, in one of two forms.
//
//            inner: a convolution's         outer: what comes from outside the chain
//            result, its gradient           or goes there, gradients of that
//   rows     [rows, channels]               [rows, channels]
//   images   [batch, positions, channels]   [batch, channels, positions]
//
// A row is a position of an element of the batch: the left column is the same in memory. The first
// argument of an op tells the form of all. The left column has the channels several times where the
// chain divides the convolution's result into parts.
#pragma once

#include "torch_glue.h"

#include <array>
#include <cstdint>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

class Images {
 public:
  // The channels of the former are a multiple of the parts where the caller has checked that.
  static Images of_inner(const Tensor& first, int64_t parts = 1) {
    const int64_t width = first.size(first.dim() - 1);
    return Images(first, 1, width, width / parts);
  }
  static Images of_outer(const Tensor& first, int64_t parts = 1) {
    return Images(first, 2, first.size(1) * parts, first.size(1));
  }

  // Of [batch, channels]. rows: of all images. positions: of one, or 0 where tensors are rows.
  static Images of_samples(const Tensor& first, int64_t rows, int64_t positions) {
    return Images(positions == 0, positions == 0 ? rows : first.size(0), positions, first.size(1));
  }

  int64_t rows() const { return inner_[0] * (are_rows_ ? 1 : inner_[1]); }
  // Of a part; those of all of them.
  int64_t channels() const { return outer_[1]; }
  int64_t width() const { return are_rows_ ? inner_[1] : inner_[2]; }
  // Of an image; 0 where all tensors are rows.
  int64_t positions() const { return are_rows_ ? 0 : inner_[1]; }
  Shape inner() const { return shape(inner_); }
  Shape outer() const { return shape(outer_); }

 private:
  // dimension: that of the positions, in an image.
  Images(const Tensor& first, int dimension, int64_t width, int64_t channels)
      : are_rows_(first.dim() != 3) {
    const int64_t count = first.size(0), positions = are_rows_ ? 0 : first.size(dimension);
    if (are_rows_) {
      inner_ = {count, width, 0};
    } else {
      inner_ = {count, positions, width};
    }
    outer_ = {count, channels, positions};
  }
  Images(bool are_rows, int64_t count, int64_t positions, int64_t channels)
      : are_rows_(are_rows),
        inner_{count, are_rows ? channels : positions, are_rows ? 0 : channels},
        outer_{count, channels, positions} {}
  Shape shape(const std::array<int64_t, 3>& sizes) const {
    return Shape(sizes.data(), are_rows_ ? 2 : 3);
  }

  bool are_rows_;
  std::array<int64_t, 3> inner_, outer_;
};

}}  // namespace fusegen::glue
