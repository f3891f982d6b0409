// A copy of images that exchanges their two dimensions: its arguments, for kernels/image_copy.cuh
// and for torch_image_copy.h.
#pragma once

#include <cstdint>

namespace fusegen {

// from: [images, rows, columns], with elements of from_bytes. to: [images, columns, to_rows], in
// the same type where its elements have as many bytes; else `from` is of float, and `to` of the
// type of activations of the call's mode.
//
// Where to_rows are more than `rows`, those behind them are zeros. Then `to` has elements of 16
// bits and begins at a multiple of 16 bytes, and to_rows are a multiple of 8. Only then may `from`
// be exchanged already: [images, columns, rows].
struct ImageCopy {
  const void* from;
  void* to;
  int64_t images, rows, columns, to_rows;
  int64_t from_bytes, to_bytes;
  bool exchanged;
};

}  // namespace fusegen
