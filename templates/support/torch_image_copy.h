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

// [images, columns, rows] of [images, rows, columns], which lie so in memory. dtype: that of
// `from`, or that of activations in `mode` where `from` is of float.
inline Tensor exchanged(
    const ImageCopier& copier, const Tensor& from, int64_t rows, int64_t columns, ScalarType dtype,
    int64_t mode) {
  const Tensor to = empty(from, dtype, {from.size(0), columns, rows});
  const Launch launch(from);
  Call call{mode, 0, 0};
  call.stream = launch.stream;
  const ImageCopy copy{read(from), write(to), from.size(0), rows, columns,
                       copied_bytes(from.scalar_type()), copied_bytes(dtype)};
  if (from.numel() > 0) {
    check_launch("image_copy", copier.launcher(&call, &copy), copier.error_text);
  }
  return to;
}

// The op of a package. dtype: see above.
inline Tensor copy_images(
    const ImageCopier& copier, const Arguments& args, const Tensor& images, ScalarType dtype,
    int64_t mode) {
  const ScalarType came = images.scalar_type();
  const Tensor from = args.input("images", images, came, {kAny, kAny, kAny});
  const bool rounds = came == ScalarType::Float && copied_bytes(dtype) == 2;
  if (copied_bytes(came) == 0 || (came != dtype && !rounds)) {
    fail("copy_images", "no copy of ", came, " to ", dtype);
  }
  return exchanged(copier, from, from.size(1), from.size(2), dtype, mode);
}

// A tensor that kernels read as [batch, channels, positions], contiguous. What comes in
// channels_last is copied by the kernel, other strides are left to PyTorch.
[[nodiscard]] inline Tensor outer_input(
    const ImageCopier& copier, const Arguments& args, const char* name, const Tensor& tensor,
    ScalarType dtype, Shape shape) {
  args.matrix(name, tensor, dtype, shape);
  if (tensor.dim() == 3 && !tensor.is_contiguous() && copied_bytes(dtype) != 0) {
    const int64_t channels = tensor.size(1), positions = tensor.size(2);
    const bool is_last = tensor.stride(1) == 1 && tensor.stride(2) == channels &&
                         tensor.stride(0) == channels * positions;
    const int64_t bytes = copied_bytes(dtype);
    const bool is_narrow = bytes == 2 && channels * bytes < kLeastVector;
    if (is_last && !is_narrow && channels * positions >= kLeastImage) {
      return exchanged(copier, tensor, positions, channels, dtype, 0);
    }
  }
  return args.input(name, tensor, dtype, shape);
}

}}  // namespace fusegen::glue
