// Copies between contiguous tensors and those in channels_last: kernels/image_copy.cuh.
//
// In PyTorch's own copy the threads read or write elements that lie apart: it takes about twice as
// long as one that keeps the order.
#pragma once

#include "call.h"
#include "image_copy.h"
#include "torch_arguments.h"

#include <cstdint>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// The launcher of a package, and what tells its errors.
struct ImageCopier {
  int (*launcher)(const Call* call, const ImageCopy* copy);
  const char* (*error_text)(int);
};

// A block of the kernel copies a part of one image: smaller images are left to PyTorch.
constexpr int64_t kLeastImage = 256;
// Of fewer channels in 16 bits, an image in channels_last is read element by element.
constexpr int64_t kLeastVector = 16;

// Bytes of an element, or 0 where the kernel copies no such elements.
inline int64_t copied_bytes(ScalarType dtype) {
  if (dtype == ScalarType::Float) return 4;
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16 ? 2 : 0;
}

// Copies to `to`, [images, columns, to_rows], what lies in memory as [images, rows, columns], or is
// exchanged already. mode: as of exchanged().
inline void copy_to(
    const Tensor& to, const ImageCopier& copier, const Tensor& from, int64_t rows, int64_t mode,
    bool exchanged = false) {
  const Launch launch(from);
  Call call{mode, 0, 0};
  call.stream = launch.stream;
  const ImageCopy copy{
      read(from), write(to), to.size(0), rows, to.size(1), to.size(2),
      copied_bytes(from.scalar_type()), copied_bytes(to.scalar_type()), exchanged};
  if (from.numel() > 0) {
    check_launch("image_copy", copier.launcher(&call, &copy), copier.error_text);
  }
}

// [images, columns, rows] of [images, rows, columns], which lie so in memory. dtype: that of
// `from`, or that of activations in `mode` where `from` is of float.
inline Tensor exchanged(
    const ImageCopier& copier, const Tensor& from, int64_t rows, int64_t columns, ScalarType dtype,
    int64_t mode) {
  const Tensor to = empty(from, dtype, {from.size(0), columns, rows});
  copy_to(to, copier, from, rows, mode);
  return to;
}

inline void check_copied(const char* op, ScalarType from, ScalarType to) {
  const bool rounds = from == ScalarType::Float && copied_bytes(to) == 2;
  if (copied_bytes(from) == 0 || (from != to && !rounds)) {
    fail(op, "no copy of ", from, " to ", to);
  }
}

// Whether [images, channels, positions] is in channels_last, and not contiguous.
inline bool is_only_last(const Tensor& tensor) {
  const int64_t channels = tensor.size(1), positions = tensor.size(2);
  return !tensor.is_contiguous() && tensor.stride(1) == 1 && tensor.stride(2) == channels &&
         tensor.stride(0) == channels * positions;
}

// That of activations, or for a negative mode the images' own.
inline ScalarType dtype_of_copy(
    const Arguments& args, const Tensor& images, int64_t mode, const Modes& modes) {
  return mode < 0 ? images.scalar_type() : args.mode(mode, modes)[kActivation];
}

// An op of a package.
inline Tensor copy_images(
    const ImageCopier& copier, const Arguments& args, const Tensor& images, int64_t mode,
    const Modes& modes) {
  const ScalarType came = images.scalar_type(), dtype = dtype_of_copy(args, images, mode, modes);
  const Tensor from = args.input("images", images, came, {kAny, kAny, kAny});
  check_copied("copy_images", came, dtype);
  return exchanged(copier, from, from.size(1), from.size(2), dtype, mode);
}

// An op of a package: [images, positions, more] of [images, channels, positions], in either format.
// Behind the channels there are zeros. more: a multiple of 8. The dtype is of 16 bits.
inline Tensor pad_images(
    const ImageCopier& copier, const Arguments& args, const Tensor& images, int64_t more,
    int64_t mode, const Modes& modes) {
  const ScalarType came = images.scalar_type(), dtype = dtype_of_copy(args, images, mode, modes);
  args.matrix("images", images, came, {kAny, kAny, kAny});
  const int64_t channels = images.size(1);
  check_copied("pad_images", came, dtype);
  if (copied_bytes(dtype) != 2 || more < channels || more % 8 != 0) {
    fail("pad_images", "no copy of ", channels, " channels with ", more, " in ", dtype);
  }
  const bool is_last = is_only_last(images);
  const Tensor from = is_last ? images : args.input("images", images, came, {kAny, kAny, kAny});
  const Tensor to = empty(images, dtype, {images.size(0), images.size(2), more});
  copy_to(to, copier, from, channels, mode, is_last);
  return to;
}

// A tensor that kernels read as [batch, channels, positions], contiguous. What comes in
// channels_last is copied by the kernel, other strides are left to PyTorch.
template <const ImageCopier& copier>
[[nodiscard]] Tensor outer_input(
    const Arguments& args, std::string_view name, const Tensor& tensor, ScalarType dtype,
    Shape shape) {
  args.matrix(name, tensor, dtype, shape);
  if (tensor.dim() == 3 && !tensor.is_contiguous() && copied_bytes(dtype) != 0) {
    const int64_t channels = tensor.size(1), positions = tensor.size(2);
    const int64_t bytes = copied_bytes(dtype);
    const bool is_narrow = bytes == 2 && channels * bytes < kLeastVector;
    if (is_only_last(tensor) && !is_narrow && channels * positions >= kLeastImage) {
      return exchanged(copier, tensor, positions, channels, dtype, 0);
    }
  }
  return args.input(name, tensor, dtype, shape);
}

}}  // namespace fusegen::glue
