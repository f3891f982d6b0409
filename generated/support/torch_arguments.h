// Checks of the arguments of an op. Errors name the op, the argument, what was expected, what came.
#pragma once

#include "torch_op.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

template <class Sizes>
inline std::string shape_text(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + (size == kAny ? std::string("*") : std::to_string(size));
  }
  return "[" + text + "]";
}

inline std::string device_text(const Device& device) {
  const std::string type = device.is_cpu() ? "cpu" : device.is_cuda() ? "cuda" : "another type";
  return device.has_index() ? type + ":" + std::to_string(device.index()) : type;
}

// Checks the arguments of one call, which must all lie on the device of the first. One method for
// each use of an argument:
//   matrix   an operand of the contraction: any strides, cuBLAS takes it or ATen copies it
//   input    read by a kernel: as it is when contiguous, else through a contiguous copy
//   buffer   written by a kernel (running statistics): must be contiguous, is never copied
class Arguments {
 public:
  Arguments(const char* op, std::string_view first_name, const Tensor& first)
      : op_(op), first_name_(first_name), device_(first.device()) {
    if (device_.type() != kDevice) {
      fail(op_, first_name, ": expected device ", device_text(Device(kDevice)), ", got ",
           device_text(device_));
    }
  }

  void matrix(std::string_view name, const Tensor& tensor, ScalarType dtype, Shape shape) const {
    if (tensor.device() != device_) {
      fail(op_, name, ": expected device ", device_text(device_), " as ", first_name_, ", got ",
           device_text(tensor.device()));
    }
    if (tensor.scalar_type() != dtype) {
      fail(op_, name, ": expected dtype ", dtype, ", got ", tensor.scalar_type());
    }
    const auto sizes = tensor.sizes();
    const auto fits = [](int64_t came, int64_t want) { return want == kAny || want == came; };
    if (!std::equal(sizes.begin(), sizes.end(), shape.begin(), shape.end(), fits)) {
      fail(op_, name, ": expected shape ", shape_text(shape), ", got ", shape_text(sizes));
    }
  }

  [[nodiscard]] Tensor input(std::string_view name, const Tensor& tensor, ScalarType dtype,
                             Shape shape) const {
    matrix(name, tensor, dtype, shape);
    return tensor.is_contiguous() ? tensor : contiguous(tensor);
  }

  void buffer(std::string_view name, const Tensor& tensor, ScalarType dtype, Shape shape) const {
    matrix(name, tensor, dtype, shape);
    if (!tensor.is_contiguous()) fail(op_, name, ": expected a contiguous tensor to write");
  }

  // An optional argument is checked when it is there.
  void matrix(std::string_view name, const OptionalTensor& tensor, ScalarType dtype,
              Shape shape) const {
    if (tensor) matrix(name, *tensor, dtype, shape);
  }
  [[nodiscard]] OptionalTensor input(std::string_view name, const OptionalTensor& tensor,
                                     ScalarType dtype, Shape shape) const {
    return tensor ? OptionalTensor(input(name, *tensor, dtype, shape)) : std::nullopt;
  }
  void buffer(std::string_view name, const OptionalTensor& tensor, ScalarType dtype,
              Shape shape) const {
    if (tensor) buffer(name, *tensor, dtype, shape);
  }

  const Tensor& required(std::string_view name, const OptionalTensor& tensor) const {
    if (!tensor) fail(op_, name, ": expected a tensor, got None");
    return *tensor;
  }
  void divisor(std::string_view name, int64_t value, int64_t of) const {
    if (value < 1 || of % value != 0) {
      fail(op_, name, ": expected a divisor of ", of, ", got ", value);
    }
  }
  void within(std::string_view name, int64_t value, int64_t least, int64_t most) const {
    if (value < least || value > most) {
      fail(op_, name, ": expected ", least, " to ", most, ", got ", value);
    }
  }
  void list(std::string_view name, size_t length, size_t expected) const {
    if (length != expected) fail(op_, name, ": expected ", expected, " values, got ", length);
  }
  // A call's dtypes are one row of the package's table of modes.
  Dtypes mode(int64_t mode, const Modes& modes) const {
    if (mode < 0 || mode >= modes.count) {
      fail(op_, "dtype_mode: expected 0 to ", modes.count - 1, ", got ", mode);
    }
    return Dtypes(modes.rows + mode * modes.roles);
  }

 private:
  const char* op_;
  std::string_view first_name_;
  const Device device_;
};

}}  // namespace fusegen::glue
