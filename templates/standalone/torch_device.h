// Where the kernels run: on the device of the tensors, in the order of its current stream.
#pragma once

#include <torch/extension.h>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

constexpr auto kDevice = at::kCUDA;

// While it lives, the tensor's device is current, autograd records nothing and autocast casts
// nothing: that has been seen to. `stream` is what the launchers take.
class Launch {
 public:
  explicit Launch(const at::Tensor& tensor)
      : guard_(tensor.device()), no_autocast_(c10::DispatchKey::AutocastCUDA) {
    const int device = tensor.get_device();
    stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
  }
  void* stream = nullptr;

 private:
  c10::cuda::CUDAGuard guard_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

}}  // namespace fusegen::glue
