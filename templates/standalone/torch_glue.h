// What the ops below need from PyTorch: tensors, memory and matrix products. Errors are
// RuntimeError in Python.
#pragma once

#include <torch/extension.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "torch_device.h"

// Hidden, so that two extensions in one process never share these functions.
namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

using at::Device;
using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Sizes of a tensor, which the caller keeps.
class Shape {
 public:
  Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.size()) {}
  Shape(const int64_t* sizes, size_t count) : sizes_(sizes), count_(count) {}
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + count_; }
  size_t size() const { return count_; }

 private:
  const int64_t* sizes_;
  size_t count_;
};

constexpr int64_t kAny = -1;  // in an expected shape: any size

template <class... Parts>
[[noreturn]] inline void fail(const char* where, const Parts&... parts) {
  std::ostringstream message;
  message << where << ": ";
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

inline const void* read(const Tensor& tensor) { return tensor.data_ptr(); }
inline const void* read(const OptionalTensor& tensor) { return tensor ? read(*tensor) : nullptr; }
inline void* write(const Tensor& tensor) { return tensor.data_ptr(); }
inline void* write(const OptionalTensor& tensor) { return tensor ? write(*tensor) : nullptr; }

// Tells autograd that a buffer has other values now.
inline void written(const OptionalTensor& tensor) {
  if (tensor && !tensor->is_inference()) tensor->unsafeGetTensorImpl()->bump_version();
}

inline Tensor contiguous(const Tensor& tensor) { return tensor.contiguous(); }

// Contiguous and uninitialised, on the device of `like`.
inline Tensor empty(const Tensor& like, ScalarType dtype, Shape shape) {
  const at::IntArrayRef sizes(shape.begin(), shape.size());
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(like.device()));
}

inline OptionalTensor empty_if(bool wanted, const Tensor& like, ScalarType dtype, Shape shape) {
  return wanted ? OptionalTensor(empty(like, dtype, shape)) : std::nullopt;
}

// The tensor, or what it is the same as where it was not made.
inline const Tensor& either(const OptionalTensor& tensor, const Tensor& same) {
  return tensor ? *tensor : same;
}
inline const Tensor& either(const OptionalTensor& tensor, const OptionalTensor& same) {
  return tensor ? *tensor : *same;
}

// Scratch memory of one launch. The caching allocator keeps it valid for the current stream.
inline OptionalTensor workspace(const Tensor& like, int64_t bytes) {
  return empty_if(bytes > 0, like, ScalarType::Byte, {bytes});
}

inline bool is_narrow(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
}

inline Tensor transposed(const Tensor& matrix) { return matrix.t(); }
inline Tensor mm(const Tensor& a, const Tensor& b) { return at::mm(a, b); }

// x W^T, plus the bias if there is one, of the dtype of x.
inline Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  return bias ? at::addmm(*bias, x, transposed(weight)) : at::mm(x, transposed(weight));
}

// A launcher's cudaError_t.
inline void check_launch(const char* launcher, int status, const char* (*error_text)(int)) {
  if (status != 0) fail(launcher, "CUDA error ", status, ": ", error_text(status));
}

}}  // namespace fusegen::glue
