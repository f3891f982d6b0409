// A copy of images that exchanges their two dimensions: its arguments, for kernels/image_copy.cuh
// and for torch_image_copy.h.
#pragma once

#include <cstdint>

namespace fusegen {

// from: [images, rows, columns], with elements of from_bytes. to: [images, columns, rows], in the
// same type where its elements have as many bytes; else `from` is of float, and `to` of the type of
// activations of the call's mode.
struct ImageCopy {
  const void* from;
  void* to;
  int64_t images, rows, columns;
  int64_t from_bytes, to_bytes;
};

}  // namespace fusegen
