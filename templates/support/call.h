// What every launcher of a package's kernels.cu takes, besides the arguments of its own that
// launchers.h declares.
#pragma once

#include <cstdint>

namespace fusegen {

struct Shapes;  // shapes.cuh

// How positions of images are pooled, as PyTorch has it: three dimensions, of which the first have
// one position where images have fewer. in, out: positions in front and behind. counts_padding:
// whether the zeros of the padding count in a mean. divisor: of sums; 0: how many positions there
// are. Ops take these numbers as a list.
constexpr int kPooledDimensions = 3;
struct Windows {
  int64_t in[kPooledDimensions] = {1, 1, 1}, out[kPooledDimensions] = {1, 1, 1};
  int64_t kernel[kPooledDimensions] = {1, 1, 1}, stride[kPooledDimensions] = {1, 1, 1};
  int64_t padding[kPooledDimensions] = {0, 0, 0}, dilation[kPooledDimensions] = {1, 1, 1};
  int64_t counts_padding = 1, divisor = 0;
};
constexpr int kWindowNumbers = sizeof(Windows) / sizeof(int64_t);

// The rows by which kernels with their launch shapes, and the library's products, are chosen in
// row-invariant packages, however many a call has: then the order of a row's sums does not depend
// on these. A batch of a training step has so many; fewer take longer than they would.
constexpr int64_t kRowsOfLaunches = 8192, kRowsOfProducts = 2048;

// fusegen/runtime/launchers.py has the same fields, in the same order.
struct Call {
  int64_t mode;  // the dtypes, by their place in kDtypes of launchers.h
  int64_t rows, channels;
  int64_t groups = 1;              // of channels in a row; 1 where a program has none
  const Shapes* forced = nullptr;  // launch shapes; null: by the sizes
  void* workspace = nullptr;       // of as many bytes as the launcher's `_workspace` says
  void* stream = nullptr;          // a cudaStream_t
  int64_t positions = 0;           // of an image: see Sizes in kernels/program.cuh
  int64_t samples = 0;             // likewise; 0: one, or each image
  const Windows* windows = nullptr;  // of programs that pool
};

}  // namespace fusegen
