// What every generated bindings.cpp needs from PyTorch: tensors, memory and streams.
// torch_arguments.h has the checks of arguments, torch_products.h the matrix products.
//
// Through the LibTorch stable ABI only, so that one built object serves all versions of torch from
// 2.10 on. No CUDA header is needed either. Errors are RuntimeError in Python.
#pragma once

// No pybind11 in the same source: the copy that torch 2.11 ships refuses to be read with the next
// line in force.
#define TORCH_TARGET_VERSION 0x020a000000000000ULL  // the oldest torch that an object may run with

#include <dlfcn.h>

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
constexpr auto kDevice = torch::headeronly::DeviceType::FUSEGEN_DEVICE;

template <class... Parts>
[[noreturn]] inline void fail(const char* where, const Parts&... parts) {
  std::ostringstream message;
  message << where << ": ";
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

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

// Contiguous and uninitialised, on the device of `like`, with eight dimensions at most.
inline Tensor empty(const Tensor& like, ScalarType dtype, Shape shape) {
  std::array<int64_t, 8> strides{1};
  for (size_t i = shape.size(), stride = 1; i-- > 0; stride *= shape.begin()[i]) {
    strides[i] = stride;
  }
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

// A C function of libtorch's that cannot be linked: a CPU-only machine has no libtorch_cuda, and
// not every version has each function. Null where there is none.
template <class Function>
inline Function find(const char* name) {
  constexpr bool cpu = kDevice == torch::headeronly::DeviceType::CPU;
  void* library = dlopen(cpu ? "libtorch_cpu.so" : "libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

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
