// What every generated bindings.cpp needs from PyTorch, through the LibTorch stable ABI only: one
// built object serves all versions of torch from 2.10 on. No CUDA header is needed either.
// Errors are RuntimeError in Python and name the op, the argument, what was expected, what came.
#pragma once

// No pybind11 in the same source: the copy that torch 2.11 ships refuses to be read with the next
// line in force.
#define TORCH_TARGET_VERSION 0x020a000000000000ULL  // the oldest torch that an object may run with

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

// The text of the last error inside libtorch. Weak, because only torch 2.13 and later have it.
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

// The dispatch key and device type of the kernels. With FUSEGEN_EMULATE the binding is built around
// kernels that run on the CPU, to test it without a GPU.
#ifdef FUSEGEN_EMULATE
#define FUSEGEN_DEVICE CPU
#else
#define FUSEGEN_DEVICE CUDA
#endif

// Hidden, so that two extensions in one process never share these functions.
namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Shape = std::initializer_list<int64_t>;

constexpr int64_t kAny = -1;  // in an expected shape: any size
constexpr auto kDevice = torch::headeronly::DeviceType::FUSEGEN_DEVICE;

template <class... Parts>
[[noreturn]] inline void fail(const char* where, const Parts&... parts) {
  std::ostringstream message;
  message << where << ": ";
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

// ---- argument checks ----------------------------------------------------------------------------

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
  Arguments(const char* op, const char* first_name, const Tensor& first)
      : op_(op), first_name_(first_name), device_(first.device()) {
    if (device_.type() != kDevice) {
      fail(op_, first_name, ": expected device ", device_text(Device(kDevice)), ", got ",
           device_text(device_));
    }
  }

  void matrix(const char* name, const Tensor& tensor, ScalarType dtype, Shape shape) const {
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

  [[nodiscard]] Tensor input(const char* name, const Tensor& tensor, ScalarType dtype,
                             Shape shape) const {
    matrix(name, tensor, dtype, shape);
    return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
  }

  void buffer(const char* name, const Tensor& tensor, ScalarType dtype, Shape shape) const {
    matrix(name, tensor, dtype, shape);
    if (!tensor.is_contiguous()) fail(op_, name, ": expected a contiguous tensor to write");
  }

  // An optional argument is checked when it is there.
  void matrix(const char* name, const OptionalTensor& tensor, ScalarType dtype, Shape shape) const {
    if (tensor) matrix(name, *tensor, dtype, shape);
  }
  [[nodiscard]] OptionalTensor input(const char* name, const OptionalTensor& tensor,
                                     ScalarType dtype, Shape shape) const {
    return tensor ? OptionalTensor(input(name, *tensor, dtype, shape)) : std::nullopt;
  }
  void buffer(const char* name, const OptionalTensor& tensor, ScalarType dtype, Shape shape) const {
    if (tensor) buffer(name, *tensor, dtype, shape);
  }

  const Tensor& required(const char* name, const OptionalTensor& tensor) const {
    if (!tensor) fail(op_, name, ": expected a tensor, got None");
    return *tensor;
  }
  void divisor(const char* name, int64_t value, int64_t of) const {
    if (value < 1 || of % value != 0) {
      fail(op_, name, ": expected a divisor of ", of, ", got ", value);
    }
  }
  void list(const char* name, size_t length, size_t expected) const {
    if (length != expected) fail(op_, name, ": expected ", expected, " values, got ", length);
  }
  // A call's dtypes are one row of the package's table of modes.
  template <class Row, size_t N>
  const Row& mode(int64_t mode, const Row (&table)[N]) const {
    if (mode < 0 || mode >= int64_t(N)) {
      fail(op_, "dtype_mode: expected 0 to ", N - 1, ", got ", mode);
    }
    return table[mode];
  }

 private:
  const char* op_;
  const char* first_name_;
  const Device device_;
};

// ---- pointers and memory ------------------------------------------------------------------------

inline const void* read(const Tensor& tensor) { return tensor.const_data_ptr(); }
inline const void* read(const OptionalTensor& tensor) { return tensor ? read(*tensor) : nullptr; }
inline void* write(const Tensor& tensor) { return tensor.mutable_data_ptr(); }
inline void* write(const OptionalTensor& tensor) { return tensor ? write(*tensor) : nullptr; }

// Throws with the reason that libtorch gave, where this version of torch can tell it.
inline void check_torch(const char* what, AOTITorchError status) {
  if (status == TORCH_SUCCESS) return;
  const auto get_reason = torch_exception_get_what_without_backtrace;
  fail(what, get_reason ? get_reason() : "failed, torch printed the reason to stderr");
}

// Contiguous and uninitialised, on the device of `like`, with one dimension or two.
inline Tensor empty(const Tensor& like, ScalarType dtype, Shape shape) {
  std::array<int64_t, 2> strides{1, 1};
  if (shape.size() == 2) strides[0] = shape.begin()[1];
  namespace abi = torch::stable::detail;
  const auto number = [](auto value) { return abi::to<int32_t>(abi::from(value)); };
  AtenTensorHandle result = nullptr;
  check_torch("aten::empty", aoti_torch_empty_strided(
                                 static_cast<int64_t>(shape.size()), shape.begin(), strides.data(),
                                 number(dtype), number(kDevice), like.get_device_index(), &result));
  return Tensor(result);
}

inline OptionalTensor empty_if(bool wanted, const Tensor& like, ScalarType dtype, Shape shape) {
  return wanted ? OptionalTensor(empty(like, dtype, shape)) : std::nullopt;
}

// Scratch memory of one launch. The caching allocator keeps it valid for the current stream.
inline OptionalTensor workspace(const Tensor& like, int64_t bytes) {
  return empty_if(bytes > 0, like, ScalarType::Byte, {bytes});
}

// ---- matrix products ----------------------------------------------------------------------------

// A C function of libtorch's that cannot be linked: a CPU-only machine has no libtorch_cuda, and
// not every version has each function. Null where there is none.
template <class Function>
inline Function find(const char* name) {
  constexpr bool cpu = kDevice == torch::headeronly::DeviceType::CPU;
  void* library = dlopen(cpu ? "libtorch_cpu.so" : "libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

#ifdef FUSEGEN_EMULATE
#define FUSEGEN_ATEN(op) "aoti_torch_cpu_" op
#else
#define FUSEGEN_ATEN(op) "aoti_torch_cuda_" op
#endif

// Calls an ATen op with one result through the dispatcher, as Python would.
template <class... Values>
inline Tensor aten(const char* op, const Values&... values) {
  std::array<StableIValue, sizeof...(Values)> stack{torch::stable::detail::from(values)...};
  check_torch(op, torch_call_dispatcher(op, "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

inline bool is_narrow(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
}

// The matrix with its axes exchanged, over the same memory.
inline Tensor transposed(const Tensor& matrix) {
  const std::array<int64_t, 2> sizes{matrix.size(1), matrix.size(0)};
  const std::array<int64_t, 2> strides{matrix.stride(1), matrix.stride(0)};
  AtenTensorHandle result = nullptr;
  check_torch("aten::t", aoti_torch__reinterpret_tensor(matrix.get(), 2, sizes.data(),
                                                        strides.data(), 0, &result));
  return Tensor(result);
}

// a b. By the device's own function where this version of torch exports it: no gradient is to be
// recorded here, and the way through the dispatcher takes longer than the launch.
inline Tensor mm(const Tensor& a, const Tensor& b) {
  using Product = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle);
  static const auto product = find<Product>(FUSEGEN_ATEN("mm_out"));
  if (!product) return aten("aten::mm", a, b);
  Tensor result = empty(a, a.scalar_type(), {a.size(0), b.size(1)});
  check_torch("aten::mm", product(result.get(), a.get(), b.get()));
  return result;
}

// bias + a b, the bias once for each row.
inline Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  using Product = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle,
                                     AtenTensorHandle, double, double);
  static const auto product = find<Product>(FUSEGEN_ATEN("addmm_out"));
  if (!product) return aten("aten::linear", a, transposed(b), OptionalTensor(bias));
  Tensor result = empty(a, a.scalar_type(), {a.size(0), b.size(1)});
  check_torch("aten::addmm", product(result.get(), bias.get(), a.get(), b.get(), 1.0, 1.0));
  return result;
}

// x W^T, plus the bias if there is one, cast to the dtype of x as autocast would.
inline Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  if (!bias) return mm(x, transposed(weight));
  if (bias->scalar_type() == x.scalar_type()) return addmm(*bias, x, transposed(weight));
  Tensor cast = empty(*bias, x.scalar_type(), {bias->size(0)});
  return addmm(torch::stable::copy_(cast, *bias), x, transposed(weight));
}

// ---- launches -----------------------------------------------------------------------------------

inline void* current_cuda_stream(int32_t device_index) {
  using GetStream = AOTITorchError (*)(int32_t, void**);
  static const auto get_stream = find<GetStream>("aoti_torch_get_current_cuda_stream");
  if (!get_stream) fail("fusegen", "no CUDA stream, this PyTorch was built without CUDA");
  void* stream = nullptr;
  check_torch("fusegen: the current CUDA stream", get_stream(device_index, &stream));
  return stream;
}

// While it lives, the tensor's device is current; `stream` is what the launchers take.
class Launch {
 public:
  explicit Launch(const Tensor& tensor) {
    if (kDevice == torch::headeronly::DeviceType::CPU) return;
    guard_.emplace(tensor.get_device_index());
    stream = current_cuda_stream(tensor.get_device_index());
  }
  void* stream = nullptr;

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

// A launcher's cudaError_t; kernels.cu provides error_text, so no CUDA header is needed here.
inline void check_launch(const char* launcher, int status, const char* (*error_text)(int)) {
  if (status != 0) fail(launcher, "CUDA error ", status, ": ", error_text(status));
}

}}  // namespace fusegen::glue
